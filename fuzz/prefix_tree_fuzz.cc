// The model test's commands, decoded from bytes: the first byte is the cache's shape and its
// eviction policy, then four bytes a command. A difference from the naive model, a broken invariant
// or a CHECK aborts.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "command_driver.h"

namespace {

using spillway::cache::CacheShape;
using spillway::cache::Command;
using spillway::cache::EvictionPolicyKind;
using spillway::cache::KeyMode;
using spillway::cache::Op;

const std::vector<CacheShape>& shapes() {
  static const std::vector<CacheShape> made = {
      {.windows = {0}, .capacity = {20}},
      {.windows = {0, 32}, .capacity = {30, 14}},
      {.windows = {0, 41}, .capacity = {24, 16}},
      {.windows = {48}, .capacity = {18}},
      {.windows = {0, 32}, .capacity = {80, 60}, .key_mode = KeyMode::kConstant},
      {.windows = {0, 32}, .capacity = {30, 20}, .prefix_caching = false},
      {.windows = {0}, .capacity = {60}},
  };
  return made;
}

constexpr EvictionPolicyKind kPolicies[] = {EvictionPolicyKind::kLru, EvictionPolicyKind::kS3Fifo,
                                            EvictionPolicyKind::kValue};

CacheShape shape_of(uint8_t byte) {
  CacheShape shape = shapes()[byte % shapes().size()];
  shape.policy = kPolicies[byte / shapes().size() % std::size(kPolicies)];
  return shape;
}

constexpr size_t kCommandsMax = 150;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const CacheShape shape = shape_of(data[0]);
  std::vector<Command> commands;
  for (size_t at = 1; at + 4 <= size && commands.size() < kCommandsMax; at += 4) {
    const auto op = static_cast<Op>(data[at] % static_cast<uint8_t>(Op::kCount));
    commands.push_back({op, data[at + 1], data[at + 2], data[at + 3]});
  }
  if (const auto problem = spillway::cache::run_commands(shape, commands)) {
    std::fprintf(stderr, "%s\n", problem->c_str());
    std::abort();
  }
  return 0;
}
