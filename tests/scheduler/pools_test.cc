#include "scheduler/pools.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace spillway::scheduler {
namespace {

std::vector<kernels::KvGroupLayout> gemma_like() {
  return {{.layers = 3, .kv_heads = 1, .head_dim = 256},
          {.layers = 15, .kv_heads = 1, .head_dim = 256, .window = 512}};
}

TEST(PlanPools, names_the_bytes_that_would_do) {
  const auto plan = plan_pools({}, gemma_like(), 4096, 8192);
  ASSERT_FALSE(plan.has_value());
  EXPECT_NE(plan.error().message.find("--kv-device-size"), std::string::npos);
  const std::string text = plan.error().message;
  const size_t at = text.find("at least ") + 9;
  const uint64_t bytes = std::stoull(text.substr(at));
  EXPECT_TRUE(plan_pools({}, gemma_like(), bytes, 8192).has_value());
  EXPECT_FALSE(plan_pools({}, gemma_like(), bytes - 1, 8192).has_value());
}

TEST(PlanPools, shortens_the_context_to_what_the_pool_holds) {
  const kernels::KvGroupLayout layout{.layers = 30, .kv_heads = 3, .head_dim = 64};
  const auto plan = plan_pools({}, {layout}, 100 * layout.page_bytes(), 8192);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->context_tokens_max, 1600u);
  EXPECT_EQ(plan->pages, (std::vector<uint32_t>{100}));
}

// Gemma 3 270M: 48 KiB a page of full attention, 240 KiB one of the window.
TEST(PlanPools, gemma_in_little_memory_has_a_long_context_and_several_users) {
  PolicyOptions options;
  options.step_tokens_max = 2048;
  const auto plan = plan_pools(options, gemma_like(), 64u << 20, 32768);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->step_tokens_max, 256u);
  // With whole steps of 2,048 in the window's pool it was 8,976.
  EXPECT_EQ(plan->context_tokens_max, 10'000u);
  // A window and a step for the one that computes its prompt, 33 pages for each of three others.
  EXPECT_EQ(plan->pages, (std::vector<uint32_t>{625, 148}));
}

TEST(PlanPools, gemma_with_room_for_32k_has_most_of_it_in_full_attention) {
  PolicyOptions options;
  options.step_tokens_max = 2048;
  const auto plan = plan_pools(options, gemma_like(), 256u << 20, 32768);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->step_tokens_max, 1024u);
  EXPECT_EQ(plan->context_tokens_max, 32768u);
  const uint64_t full = plan->pages[0] * (48u << 10), window = plan->pages[1] * (240u << 10);
  EXPECT_GT(full, 140u << 20);
  EXPECT_GT(window, 100u << 20);
  // It was 107 MiB, and sequences of 161 pages: four of them.
  EXPECT_GE(plan->pages[1], 4u * 97);
}

TEST(PlanPools, with_much_memory_steps_are_as_wanted) {
  PolicyOptions options;
  options.step_tokens_max = 2048;
  const auto plan = plan_pools(options, gemma_like(), 1u << 30, 32768);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->step_tokens_max, 2048u);
}

TEST(PlanPools, steps_of_a_model_without_windows_are_as_wanted) {
  PolicyOptions options;
  options.step_tokens_max = 2048;
  const kernels::KvGroupLayout layout{.layers = 30, .kv_heads = 3, .head_dim = 64};
  EXPECT_EQ(plan_pools(options, {layout}, 10 * layout.page_bytes(), 8192)->step_tokens_max, 2048u);
}

RC_GTEST_PROP(PlanPools, every_group_holds_the_longest_sequence_and_all_fit_the_bytes, ()) {
  auto groups = gemma_like();
  groups[1].window = *rc::gen::inRange(1u, 5000u);
  const auto context = *rc::gen::inRange(1u, 40000u);
  const auto bytes = *rc::gen::inRange<uint64_t>(0, uint64_t{8} << 30);
  PolicyOptions options;
  options.step_tokens_max = *rc::gen::inRange(1u, 5000u);
  const auto plan = plan_pools(options, groups, bytes, context);
  if (!plan) return;
  RC_ASSERT(plan->step_tokens_max <= options.step_tokens_max);
  options.step_tokens_max = plan->step_tokens_max;
  uint64_t used = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    used += plan->pages[g] * groups[g].page_bytes();
    const PolicyGroup group{.page_tokens = 16, .window = groups[g].window};
    RC_ASSERT(peak_pages(options, group, plan->context_tokens_max) <= plan->pages[g]);
  }
  RC_ASSERT(used <= bytes);
  RC_ASSERT(plan->context_tokens_max <= context);
}

}  // namespace
}  // namespace spillway::scheduler
