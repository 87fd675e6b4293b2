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

RC_GTEST_PROP(PlanPools, every_group_holds_the_longest_sequence_and_all_fit_the_bytes, ()) {
  auto groups = gemma_like();
  groups[1].window = *rc::gen::inRange(1u, 5000u);
  const auto context = *rc::gen::inRange(1u, 40000u);
  const auto bytes = *rc::gen::inRange<uint64_t>(0, uint64_t{8} << 30);
  const PolicyOptions options;
  const auto plan = plan_pools(options, groups, bytes, context);
  if (!plan) return;
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
