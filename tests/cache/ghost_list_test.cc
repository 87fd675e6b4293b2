// What policies remember of pages that are gone, and of what LRU would have.
#include "cache/ghost_list.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "cache/lru_shadow.h"

namespace spillway::cache {
namespace {

RC_GTEST_PROP(ghost_list, gives_back_what_was_put_last_or_nothing, ()) {
  GhostList ghosts(16);
  std::map<uint64_t, PageMemory> put;
  uint64_t tick = 0;
  const auto steps = *rc::gen::container<std::vector<uint8_t>>(rc::gen::arbitrary<uint8_t>());
  for (uint8_t step : steps) {
    const uint64_t key = step / 4;
    if (step % 4 < 2) {
      put[key] = {++tick, 1u + step};
      ghosts.put(key, put[key]);
      continue;
    }
    const PageMemory taken = ghosts.take(key);
    if (taken.uses > 0) {
      RC_ASSERT(put.contains(key));
      RC_ASSERT(taken.uses == put[key].uses);
      RC_ASSERT(taken.last_use == put[key].last_use);
    }
    put.erase(key);
    RC_ASSERT(ghosts.take(key).uses == 0u);
  }
}

TEST(ghost_list, remembers_the_latest_and_is_bounded) {
  GhostList ghosts(1 << 12);
  EXPECT_EQ(ghosts.capacity(), 1u << 12);
  for (uint64_t key = 1; key <= 100'000; ++key) ghosts.put(key, {key, 1});
  uint64_t recent = 0, old = 0;
  for (uint64_t key = 1; key <= 100'000; ++key) {
    (key > 100'000 - (1 << 11) ? recent : old) += ghosts.take(key).uses;
  }
  EXPECT_GT(recent, (1u << 11) * 95 / 100);
  EXPECT_LE(recent + old, 1u << 12);
}

RC_GTEST_PROP(lru_shadow, holds_what_lru_would, ()) {
  const uint64_t capacity = *rc::gen::inRange<uint64_t>(1, 20);
  LruShadow shadow;
  std::map<uint8_t, uint64_t> last_use;  // of pages
  uint64_t tick = 0;
  const auto steps = *rc::gen::container<std::vector<std::vector<uint8_t>>>(
      rc::gen::container<std::vector<uint8_t>>(rc::gen::inRange<uint8_t>(0, 30)));
  for (const std::vector<uint8_t>& used : steps) {
    tick += 1 + used.size() % 3;
    for (uint8_t page : used) {
      if (last_use[page] == tick) continue;
      shadow.used(last_use[page], tick, 1, capacity);
      last_use[page] = tick;
    }
    for (const auto& [page, last] : last_use) {
      uint64_t as_recent = 0;  // itself included
      for (const auto& [other, other_last] : last_use) as_recent += other_last >= last;
      RC_ASSERT(shadow.holds(last) == (as_recent <= capacity));
    }
  }
}

TEST(lru_shadow, a_leap_of_the_ticks_leaves_nothing_of_before) {
  LruShadow shadow;
  shadow.used(0, 5, 3, 100);
  EXPECT_TRUE(shadow.holds(5));
  shadow.used(0, 5 + 3 * LruShadow::kTicksMax, 1, 100);
  EXPECT_FALSE(shadow.holds(5));
  EXPECT_TRUE(shadow.holds(5 + 3 * LruShadow::kTicksMax));
  for (uint64_t i = 6; i < 105; ++i) shadow.used(0, i + 3 * LruShadow::kTicksMax, 1, 100);
  EXPECT_TRUE(shadow.holds(5 + 3 * LruShadow::kTicksMax));
}

}  // namespace
}  // namespace spillway::cache
