#include "scheduler/break_even.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace spillway::scheduler {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

// 64 KiB a token, 1 MiB a page.
const std::vector<kernels::KvGroupLayout> kModel = {{.layers = 32, .kv_heads = 8, .head_dim = 64}};

cache::ComputeRate constant_rate(double seconds_per_token) {
  cache::ComputeRate rate;
  rate.measured(0, 100, 100 * seconds_per_token);
  return rate;
}

TEST(BreakEven, a_fixed_latency_is_paid_back_by_enough_tokens) {
  // 0.1 ms a token to load, 1 ms to compute: 9 ms are paid back by 10 tokens, so by one page.
  const LoadSpeed speed{.latency_s = 0.009, .bytes_per_s = {65536 / 0.0001}};
  EXPECT_EQ(break_even_tokens(speed, kModel, constant_rate(0.001), 8192), 16u);
  // 100 ms by 111.1 tokens.
  const LoadSpeed late{.latency_s = 0.1, .bytes_per_s = {65536 / 0.0001}};
  EXPECT_EQ(break_even_tokens(late, kModel, constant_rate(0.001), 8192), 112u);
  EXPECT_EQ(break_even_tokens(late, kModel, constant_rate(0.001), 111), 0u);
}

TEST(BreakEven, there_is_none_where_the_disk_is_slower_than_the_processor) {
  const LoadSpeed speed{.latency_s = 0, .bytes_per_s = {65536 / 0.002}};
  EXPECT_EQ(break_even_tokens(speed, kModel, constant_rate(0.001), 1u << 17), 0u);
}

TEST(BreakEven, later_positions_are_dearer_to_compute) {
  cache::ComputeRate rate = constant_rate(0.001);
  rate.measured(4096, 100, 100 * 0.01);
  const LoadSpeed speed{.latency_s = 0, .bytes_per_s = {65536 / 0.002}};
  const uint32_t tokens = break_even_tokens(speed, kModel, rate, 8192);
  EXPECT_GT(tokens, 2048u);
  EXPECT_LT(tokens, 8192u);
  EXPECT_GT(compute_seconds(rate, tokens), load_seconds(speed, kModel, tokens));
}

TEST(BreakEven, of_a_window_group_only_the_window_is_loaded) {
  std::vector<kernels::KvGroupLayout> window = kModel;
  window[0].window = 512;
  const LoadSpeed speed{.latency_s = 0, .bytes_per_s = {65536 / 0.0019}};
  // 528 tokens loaded in 1.003 s, computed in as many milliseconds as there are tokens.
  EXPECT_EQ(break_even_tokens(speed, window, constant_rate(0.001), 8192), 1008u);
}

TEST(BreakEven, each_group_loads_at_the_rate_of_its_page_size) {
  std::vector<kernels::KvGroupLayout> two = {kModel[0], kModel[0]};
  const LoadSpeed speed{.latency_s = 0.5, .bytes_per_s = {1e6, 2e6}};
  EXPECT_DOUBLE_EQ(load_seconds(speed, two, 32), 0.5 + 2.0 * kMiB / 1e6 + 2.0 * kMiB / 2e6);
}

RC_GTEST_PROP(BreakEven, from_it_on_loading_wins_and_one_page_earlier_it_does_not, ()) {
  cache::ComputeRate rate;
  for (uint32_t position = 0; position < 16384; position = position == 0 ? 512 : position * 2) {
    rate.measured(position, 64, *rc::gen::inRange(1, 1000) * 1e-3);
  }
  const LoadSpeed speed{.latency_s = *rc::gen::inRange(0, 1000) * 1e-3,
                        .bytes_per_s = {*rc::gen::inRange(1, 100'000) * 1e5}};
  constexpr uint32_t kContext = 16384;
  const auto wins = [&](uint32_t tokens) {
    return load_seconds(speed, kModel, tokens) < compute_seconds(rate, tokens);
  };
  const uint32_t least = break_even_tokens(speed, kModel, rate, kContext);
  RC_ASSERT((least != 0) == wins(kContext));
  if (least == 0) return;
  for (uint32_t tokens = least; tokens <= kContext; tokens += 16) RC_ASSERT(wins(tokens));
  if (least > 16) RC_ASSERT(!wins(least - 16));
}

TEST(RecommendSizes, leaves_room_for_the_weights_and_all_else) {
  const TierSizes sizes = recommend_sizes({.memory_free_bytes = 16 * kGiB,
                                           .weight_bytes = 4 * kGiB,
                                           .disk_free_bytes = 100 * kGiB,
                                           .nvme_wins = true});
  EXPECT_EQ(sizes.device_bytes, 7680 * kMiB);  // 3/4 of 16 - 4 - 2
  EXPECT_EQ(sizes.nvme_bytes, 75 * kGiB);
}

TEST(RecommendSizes, wants_no_disk_that_costs_more_than_it_saves) {
  const TierSizes sizes = recommend_sizes({.memory_free_bytes = 16 * kGiB,
                                           .weight_bytes = kGiB,
                                           .disk_free_bytes = 100 * kGiB,
                                           .nvme_wins = false});
  EXPECT_EQ(sizes.nvme_bytes, 0u);
}

TEST(RecommendSizes, says_zero_where_the_weights_fill_the_memory) {
  EXPECT_EQ(recommend_sizes({.memory_free_bytes = 4 * kGiB, .weight_bytes = 4 * kGiB}).device_bytes,
            0u);
  EXPECT_EQ(recommend_sizes({}).device_bytes, 0u);
}

}  // namespace
}  // namespace spillway::scheduler
