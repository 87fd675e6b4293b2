// Random commands on the cache and on the naive model of it, in caches of several shapes that are
// small enough to be full most of the time. RapidCheck prints the seed, shrinks a failure, and
// replays it with RC_PARAMS="seed=...".
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <iostream>

#include "command_driver.h"

namespace spillway::cache {

void showValue(const Command& command, std::ostream& out) {
  out << "{Op{" << int{static_cast<uint8_t>(command.op)} << "}, " << int{command.a} << ", "
      << int{command.b} << ", " << int{command.c} << "}";
}

namespace {

rc::Gen<Command> any_command() {
  // Steps are what moves things: they come as often as all else together.
  const auto op = rc::gen::weightedElement<Op>({{5, Op::kBegin},
                                                {4, Op::kContinue},
                                                {14, Op::kExtend},
                                                {2, Op::kReserve},
                                                {2, Op::kFork},
                                                {3, Op::kRelease},
                                                {2, Op::kHold},
                                                {1, Op::kEndSession},
                                                {1, Op::kBreakpoint},
                                                {2, Op::kPreempt},
                                                {1, Op::kPinPrefix},
                                                {1, Op::kUnpinPrefix},
                                                {1, Op::kClear}});
  const auto byte = rc::gen::inRange<int>(0, 256);
  return rc::gen::build<Command>(rc::gen::set(&Command::op, op),
                                 rc::gen::set(&Command::a, rc::gen::cast<uint8_t>(byte)),
                                 rc::gen::set(&Command::b, rc::gen::cast<uint8_t>(byte)),
                                 rc::gen::set(&Command::c, rc::gen::cast<uint8_t>(byte)));
}

void check_shape(const CacheShape& shape, int commands_max = 150) {
  uint64_t commands_run = 0;
  // Of full size from the first case on: a short run in a small range finds little.
  const auto story =
      rc::gen::resize(commands_max, rc::gen::container<std::vector<Command>>(any_command()));
  const bool passed = rc::check("the cache does what the naive model does", [&] {
    const std::vector<Command> commands = *story;
    commands_run += commands.size();
    const auto problem = run_commands(shape, commands);
    if (problem) RC_FAIL(*problem);
  });
  EXPECT_TRUE(passed);
  std::cout << "commands run: " << commands_run << "\n";
}

TEST(cache_model, full_attention) { check_shape({.windows = {0}, .capacity = {20}}); }

TEST(cache_model, full_attention_with_room) { check_shape({.windows = {0}, .capacity = {60}}); }

TEST(cache_model, full_attention_and_a_window) {
  check_shape({.windows = {0, 32}, .capacity = {30, 14}});
}

TEST(cache_model, a_window_that_is_no_multiple_of_a_page) {
  check_shape({.windows = {0, 41}, .capacity = {24, 16}});
}

TEST(cache_model, a_window_of_less_than_a_page) {
  check_shape({.windows = {0, 5}, .capacity = {24, 10}});
}

TEST(cache_model, windows_only) { check_shape({.windows = {48}, .capacity = {18}}); }

TEST(cache_model, two_windows) { check_shape({.windows = {32, 64}, .capacity = {16, 24}}); }

// case K17
TEST(cache_model, all_hashes_equal) {
  check_shape({.windows = {0, 32}, .capacity = {80, 60}, .key_mode = KeyMode::kConstant}, 400);
}

// The other policies choose other pages, never ones that may not go, nor a page of a tenant within
// its share while another is over it (case I2).
TEST(cache_model, value_policy) {
  check_shape({.windows = {0}, .capacity = {20}, .policy = EvictionPolicyKind::kValue});
}

TEST(cache_model, value_policy_and_a_window) {
  check_shape({.windows = {0, 32}, .capacity = {30, 14}, .policy = EvictionPolicyKind::kValue});
}

TEST(cache_model, s3_fifo_policy) {
  check_shape({.windows = {0}, .capacity = {20}, .policy = EvictionPolicyKind::kS3Fifo});
}

TEST(cache_model, s3_fifo_policy_and_a_window) {
  check_shape({.windows = {0, 41}, .capacity = {24, 16}, .policy = EvictionPolicyKind::kS3Fifo});
}

TEST(cache_model, without_prefix_caching) {
  check_shape({.windows = {0, 32}, .capacity = {30, 20}, .prefix_caching = false});
}

}  // namespace
}  // namespace spillway::cache
