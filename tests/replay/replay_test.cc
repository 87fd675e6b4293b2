// The policies on traces: whether the default is worth having, and never much worse than LRU.
#include "replay.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace spillway::replay {
namespace {

using cache::EvictionPolicyKind;

double hits(const Trace& trace, std::optional<EvictionPolicyKind> policy, uint32_t blocks) {
  return replay(trace, {.policy = policy, .device_blocks = blocks}).hit_share();
}

Trace published_cut() {
  std::ifstream file("tests/data/traces/conversation_cut.jsonl");
  Result<Trace> trace = read_trace(file);
  return trace ? *trace : Trace{};
}

TEST(replay, a_bad_line_is_named) {
  std::istringstream text("{\"input_length\": 600, \"hash_ids\": [1, 2]}\n{\"input_length\": 3}\n");
  const Result<Trace> trace = read_trace(text);
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("line 2"), std::string::npos);
}

TEST(replay, counts_what_is_found_again_and_prices_it) {
  const Trace trace = {{1024, {1, 2}}, {1536, {1, 2, 3}}, {512, {9}}};
  const ReplayResult result = replay(trace, {.device_blocks = 10});
  EXPECT_EQ(result.blocks, 6u);
  EXPECT_EQ(result.device, 2u);
  EXPECT_EQ(result.first_token_seconds.size(), 3u);
  EXPECT_LT(result.compute_seconds, result.compute_seconds_cold);
  EXPECT_EQ(replay(trace, {.device_blocks = 1}).device, 1u);  // of prompts too long, what fits
}

TEST(replay, what_the_device_evicts_is_found_in_the_tiers_below) {
  const Trace trace = documents({.requests = 400, .documents = 40});
  const ReplayResult device = replay(trace, {.device_blocks = 100});
  const ReplayResult host = replay(trace, {.device_blocks = 100, .host_blocks = 200});
  const ReplayResult all =
      replay(trace, {.device_blocks = 100, .host_blocks = 200, .nvme_blocks = 5000});
  const ReplayResult endless = replay(trace, {.device_blocks = 5000});
  EXPECT_EQ(device.host + device.nvme, 0u);
  EXPECT_GT(host.hit_share(), device.hit_share());
  EXPECT_GT(all.nvme, 0u);
  EXPECT_EQ(all.device + all.host + all.nvme, endless.device);
}

TEST(replay, the_default_beats_lru_on_a_published_trace) {
  const Trace trace = published_cut();
  ASSERT_EQ(trace.size(), 873u);
  const double lru = hits(trace, EvictionPolicyKind::kLru, 300);
  const double value = hits(trace, EvictionPolicyKind::kValue, 300);
  RecordProperty("hits_of_lru_percent", std::to_string(100 * value / lru));
  EXPECT_GE(value, 1.4 * lru);  // 1.56
  EXPECT_GE(hits(trace, EvictionPolicyKind::kS3Fifo, 300), 1.2 * lru);
  EXPECT_GE(hits(trace, std::nullopt, 300), 1.5 * value);  // the optimum: there is more to win
}

// Also where the past says little of the future.
TEST(replay, the_default_is_never_much_worse_than_lru) {
  const std::pair<const char*, Trace> workloads[] = {
      {"published", published_cut()},
      {"documents", documents({.requests = 1500, .documents = 300})},
      {"drifting documents", documents({.requests = 3000, .documents = 400, .drift_every = 100})},
      {"conversations", conversations({.requests = 1500, .pause = 30})},
      {"agents", agents(1500, 1)},
      {"never again", never_again(500, 1)},
  };
  for (const auto& [name, trace] : workloads) {
    for (uint32_t blocks : {100, 300, 1000, 3000}) {
      const double lru = hits(trace, EvictionPolicyKind::kLru, blocks);
      EXPECT_GE(hits(trace, EvictionPolicyKind::kValue, blocks), 0.98 * lru)
          << name << ", " << blocks << " blocks";
    }
  }
}

}  // namespace
}  // namespace spillway::replay
