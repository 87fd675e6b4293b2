// Random commands on cache and tiers, in shapes that are small enough to be full most of the time
// (cases K1, K3 to K10, K12 to K18; docs/TESTING.md says how each is held). RapidCheck prints the
// seed, shrinks a failure, and replays it with RC_PARAMS="seed=...".
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <iostream>

#include "tiers_driver.h"

namespace spillway::cache {

void showValue(const TierCommand& command, std::ostream& out) {
  out << "{TierOp{" << int{static_cast<uint8_t>(command.op)} << "}, " << int{command.a} << ", "
      << int{command.b} << ", " << int{command.c} << "}";
}

namespace {

rc::Gen<TierCommand> any_command() {
  const auto op = rc::gen::weightedElement<TierOp>(
      {{5, TierOp::kBegin},      {14, TierOp::kContinue}, {26, TierOp::kStep},
       {12, TierOp::kAdopt},     {2, TierOp::kGiveUp},    {2, TierOp::kFork},
       {10, TierOp::kRelease},   {2, TierOp::kDrop},      {3, TierOp::kHold},
       {1, TierOp::kEndSession}, {4, TierOp::kPreempt},   {2, TierOp::kKeep},
       {26, TierOp::kEvents},    {2, TierOp::kTime},      {5, TierOp::kSettle},
       {12, TierOp::kForget},    {3, TierOp::kClear},     {3, TierOp::kFault},
       {2, TierOp::kHeal},       {1, TierOp::kRestart},   {1, TierOp::kKill}});
  const auto byte = rc::gen::arbitrary<uint8_t>();
  return rc::gen::build<TierCommand>(
      rc::gen::set(&TierCommand::op, op), rc::gen::set(&TierCommand::a, byte),
      rc::gen::set(&TierCommand::b, byte), rc::gen::set(&TierCommand::c, byte));
}

void check_shape(const TiersShape& shape, int commands_max = 800) {
  uint64_t commands_run = 0, loaded = 0, stored = 0, checked = 0;
  const auto story =
      rc::gen::resize(commands_max, rc::gen::container<std::vector<TierCommand>>(any_command()));
  const bool passed = rc::check("cache and tiers do what the naive model allows", [&] {
    const std::vector<TierCommand> commands = *story;
    commands_run += commands.size();
    const TiersRun run = run_tier_commands(shape, commands);
    if (run.problem) RC_FAIL(*run.problem);
    loaded += run.loaded;
    stored += run.stored;
    checked += run.checked_paths;
  });
  EXPECT_TRUE(passed);
  std::cout << "commands run: " << commands_run << ", pages loaded: " << loaded
            << ", pages stored: " << stored << ", kept paths looked for: " << checked << "\n";
  EXPECT_GT(loaded, commands_run / 200);
}

constexpr uint64_t kSmall = 160u << 10, kRoomy = 2u << 20;
constexpr size_t kFewBuffers = 8;

TEST(tiers_model, host) {
  check_shape({.cache = {.windows = {0}, .capacity = {20}}, .host = {12}, .nvme_bytes = 0});
}

TEST(tiers_model, nvme) {
  check_shape({.cache = {.windows = {0}, .capacity = {20}},
               .nvme_bytes = kSmall,
               .staging_pages = kFewBuffers});
}

// Often enough that scrubs meet all else.
TEST(tiers_model, nvme_scrubbed) {
  check_shape({.cache = {.windows = {0, 41}, .capacity = {24, 16}},
               .nvme_bytes = kSmall,
               .scrub_pause = std::chrono::milliseconds(5),
               .scrub_rest = std::chrono::milliseconds(300)});
}

TEST(tiers_model, nvme_with_room) {
  check_shape({.cache = {.windows = {0}, .capacity = {30}, .policy = EvictionPolicyKind::kValue},
               .nvme_bytes = kRoomy});
}

TEST(tiers_model, host_and_nvme) {
  check_shape({.cache = {.windows = {0}, .capacity = {20}, .policy = EvictionPolicyKind::kS3Fifo},
               .host = {10},
               .nvme_bytes = kSmall});
}

TEST(tiers_model, a_window_with_host_and_nvme) {
  check_shape(
      {.cache = {.windows = {0, 41}, .capacity = {24, 16}}, .host = {20, 6}, .nvme_bytes = kRoomy});
}

TEST(tiers_model, a_window_with_host) {
  check_shape(
      {.cache = {.windows = {0, 41}, .capacity = {24, 16}}, .host = {14, 10}, .nvme_bytes = 0});
}

TEST(tiers_model, a_window_with_nvme) {
  check_shape({.cache = {.windows = {0, 32}, .capacity = {30, 14}},
               .nvme_bytes = kSmall,
               .staging_pages = kFewBuffers});
}

TEST(tiers_model, windows_only) {
  check_shape({.cache = {.windows = {48}, .capacity = {18}},
               .nvme_bytes = kSmall,
               .staging_pages = kFewBuffers});
}

// case K17
TEST(tiers_model, all_hashes_equal) {
  check_shape({.cache = {.windows = {0}, .capacity = {40}, .key_mode = KeyMode::kConstant},
               .host = {20},
               .nvme_bytes = kRoomy});
}

TEST(tiers_model, one_page_at_a_time) {
  check_shape({.cache = {.windows = {0}, .capacity = {20}},
               .nvme_bytes = kRoomy,
               .staging_pages = 1,
               .load_bytes_max = 1});
}

// Pages of 16 KiB that a codec makes 12, or 16 where no worker was free: a tier of so few is full
// of both all the time, and any of its pages may be too small for the next one.
TiersShape encoded(TiersShape shape) {
  for (size_t g = 0; g < shape.cache.windows.size(); ++g) shape.cache.layers.push_back(128);
  shape.host_codec = kernels::PageCodec::kPlanes;
  return shape;
}

TEST(tiers_model, encoded_in_host_memory) {
  check_shape(encoded({.cache = {.windows = {0}, .capacity = {20}}, .host = {9}, .nvme_bytes = 0}));
}

TEST(tiers_model, encoded_in_host_memory_and_with_buffers_for_one) {
  check_shape(encoded({.cache = {.windows = {0}, .capacity = {20}},
                       .host = {5},
                       .nvme_bytes = 0,
                       .staging_pages = 1,
                       .load_bytes_max = 1,
                       .codec_pages = 1}));
}

TEST(tiers_model, encoded_in_host_memory_and_written_as_it_lies) {
  check_shape(encoded({.cache = {.windows = {0, 41}, .capacity = {24, 16}},
                       .host = {12, 5},
                       .nvme_bytes = 640u << 10,
                       .nvme_codec = kernels::PageCodec::kPlanes}));
}

TEST(tiers_model, encoded_in_host_memory_and_decoded_for_the_store) {
  check_shape(
      encoded({.cache = {.windows = {0}, .capacity = {20}, .policy = EvictionPolicyKind::kValue},
               .host = {8},
               .nvme_bytes = 640u << 10,
               .codec_pages = 3}));
}

TEST(tiers_model, only_what_is_used_again_is_written) {
  check_shape({.cache = {.windows = {0}, .capacity = {20}},
               .nvme_bytes = kRoomy,
               .staging_pages = kFewBuffers,
               .write = WritePolicy::kReuse});
}

}  // namespace
}  // namespace spillway::cache
