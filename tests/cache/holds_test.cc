// Who keeps pages when the cache is full: tenants within their share, sessions, pinned prefixes.
#include <gtest/gtest.h>

#include "cache_fixture.h"

namespace spillway::cache {
namespace {

constexpr EvictionPolicyKind kKinds[] = {EvictionPolicyKind::kLru, EvictionPolicyKind::kS3Fifo,
                                         EvictionPolicyKind::kValue};

void flood(TestCache& cache, uint32_t prompts, std::string_view tenant) {
  static uint32_t seed = 1000;
  for (uint32_t i = 0; i < prompts; ++i) cache.release(cache.run(some_tokens(64, seed++), tenant));
}

// case I2
TEST(holds, a_tenant_that_floods_prefixes_cannot_evict_another_below_its_share) {
  for (EvictionPolicyKind policy : kKinds) {
    TestCache cache({.capacity = {64}, .policy = policy});
    const auto kept = some_tokens(28 * 16 + 1, 1);
    cache.release(cache.run(kept, "quiet"));
    flood(cache, 200, "loud");
    EXPECT_EQ(cache.match_length(kept, "quiet"), 28u * 16);
    // Alone, it has all: what is over the share of nobody is not kept free.
    EXPECT_GE(cache.cache().stats().groups[0].sealed, 60u);
    EXPECT_EQ(cache.problem({}), "");
  }
}

// case I2
TEST(holds, nor_by_sessions_or_pins_nor_out_of_its_windows) {
  TestCache cache({.windows = {0, 32}, .capacity = {64, 24}, .sessions_max = 1000});
  const auto kept = some_tokens(10 * 16 + 1, 1);
  cache.release(cache.run(kept, "quiet"));
  for (uint32_t i = 0; i < 100; ++i) {
    const auto prompt = some_tokens(64, 2000 + i);
    cache.release(cache.run(prompt, "loud"), "session " + std::to_string(i));
    cache.cache().pin_prefix("pin " + std::to_string(i), cache.keys(prompt, "loud"), prompt);
  }
  EXPECT_EQ(cache.match_length(kept, "quiet"), 10u * 16);
  EXPECT_EQ(cache.problem({}), "");
}

TEST(holds, a_tenant_alone_may_fill_the_cache) {
  TestCache cache({.capacity = {64}});
  const auto prompt = some_tokens(50 * 16 + 1, 1);
  cache.release(cache.run(prompt, "one"));
  flood(cache, 2, "other");
  EXPECT_EQ(cache.match_length(prompt, "one"), 50u * 16);
}

TEST(holds, a_pinned_prefix_outlives_sessions_and_all_others) {
  for (EvictionPolicyKind policy : kKinds) {
    TestCache cache({.capacity = {64}, .policy = policy});
    const auto system = some_tokens(10 * 16, 1);
    cache.release(cache.run(system));
    EXPECT_TRUE(cache.cache().pin_prefix("system", cache.keys(system), system));
    for (uint32_t i = 0; i < 40; ++i) {
      cache.release(cache.run(some_tokens(64, 100 + i)), "session " + std::to_string(i));
    }
    const auto longer = joined(system, some_tokens(1, 2));
    EXPECT_EQ(cache.match_length(longer), 160u);
    EXPECT_EQ(cache.cache().stats().pinned_prefix_pages, 10u);
    cache.cache().unpin_prefix("system");
    flood(cache, 40, "");
    EXPECT_EQ(cache.match_length(longer), 0u);
    EXPECT_EQ(cache.problem({}), "");
  }
}

TEST(holds, a_pinned_prefix_goes_before_a_request_fails) {
  TestCache cache({.capacity = {40}});
  const auto system = some_tokens(10 * 16, 1);
  cache.release(cache.run(system));
  EXPECT_TRUE(cache.cache().pin_prefix("system", cache.keys(system), system));
  cache.release(cache.run(some_tokens(39 * 16, 2)));
  EXPECT_LE(cache.match_length(joined(system, system)), 16u);
  EXPECT_LE(cache.cache().stats().pinned_prefix_pages, 1u);
}

TEST(holds, pins_cover_a_quarter_of_the_pool_at_most) {
  TestCache cache({.capacity = {64}});
  const auto a = some_tokens(10 * 16, 1), b = some_tokens(7 * 16, 2);
  cache.release(cache.run(a));
  cache.release(cache.run(b));
  EXPECT_TRUE(cache.cache().pin_prefix("a", cache.keys(a), a));
  EXPECT_FALSE(cache.cache().pin_prefix("b", cache.keys(b), b));
  EXPECT_EQ(cache.cache().stats().pinned_prefixes, 1u);
  EXPECT_TRUE(cache.cache().pin_prefix("a", cache.keys(b), b));  // in place of the other
  EXPECT_EQ(cache.cache().stats().pinned_prefix_pages, 7u);
  const auto unknown = some_tokens(32, 3);
  EXPECT_FALSE(cache.cache().pin_prefix("c", cache.keys(unknown), unknown));
  cache.cache().clear();
  EXPECT_EQ(cache.cache().stats().pinned_prefixes, 0u);
  EXPECT_EQ(cache.cache().stats().groups[0].free, 64u);
}

// The tree tells the policy of uses: what was asked for often stays when new prompts pass through.
TEST(holds, under_the_default_policy_what_is_asked_for_again_outlives_what_is_not) {
  TestCache cache({.capacity = {64}, .policy = EvictionPolicyKind::kValue});
  const auto document = some_tokens(20 * 16, 1);
  uint32_t found = 0;
  for (uint32_t i = 0; i < 30; ++i) {
    flood(cache, 12, "");  // 48 pages: each flood alone would drive the document out under LRU
    const auto question = joined(document, some_tokens(20, 500 + i));
    found += cache.match_length(question) >= document.size();
    cache.release(cache.run(question));
  }
  EXPECT_GE(found, 25u);
}

}  // namespace
}  // namespace spillway::cache
