// The policies over plain candidates, without a tree: their order against a search of all
// candidates, and what each is there for.
#include "cache/eviction_policy.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "cache/lru_policy.h"
#include "cache/s3_fifo_policy.h"
#include "cache/value_policy.h"

namespace spillway::cache {
namespace {

constexpr EvictionPolicyKind kKinds[] = {EvictionPolicyKind::kLru, EvictionPolicyKind::kS3Fifo,
                                         EvictionPolicyKind::kValue};

// A tier of plain pages, as a lower tier's store would keep them. `Policy` is what is tested.
struct Tier {
  explicit Tier(EvictionPolicy& tested) : policy(tested) {}

  EvictionCandidate& store(uint64_t key, uint32_t tenant = 0) {
    auto page = std::make_unique<EvictionCandidate>();
    page->key = key;
    page->tenant = tenant;
    const PageMemory known = policy.admit(key, tenant, tick);
    page->uses = known.uses + 1;
    page->last_use = ++tick;
    policy.used(known.last_use, tick, 1);
    policy.add(*page);
    pages.push_back(std::move(page));
    return *pages.back();
  }
  void use(EvictionCandidate& page) {
    policy.found({page.last_use, page.uses}, 1, tick);
    ++page.uses;
    ++tick;
    policy.used(page.last_use, tick, 1);
    page.last_use = tick;
    policy.update(page);
  }
  void drop(EvictionCandidate& page) {
    policy.remove(page);
    policy.gone(page);
    std::erase_if(pages, [&](const auto& held) { return held.get() == &page; });
  }
  uint64_t evict() {
    EvictionCandidate* victim = policy.victim();
    const uint64_t key = victim->key;
    drop(*victim);
    return key;
  }

  EvictionPolicy& policy;
  uint64_t tick = 0;
  std::vector<std::unique_ptr<EvictionCandidate>> pages;
};

uint64_t pages_of(const Tier& tier, uint32_t tenant) {
  return static_cast<uint64_t>(std::count_if(tier.pages.begin(), tier.pages.end(),
                                             [&](auto& p) { return p->tenant == tenant; }));
}

// Random stores, uses, changes of hold, and evictions; check(tier) after each.
template <class Check>
void random_story(EvictionPolicy& policy, Check check) {
  Tier tier(policy);
  const auto steps = *rc::gen::container<std::vector<uint32_t>>(rc::gen::arbitrary<uint32_t>());
  for (uint32_t step : steps) {
    const size_t index = tier.pages.empty() ? 0 : (step / 8) % tier.pages.size();
    if (step % 8 < 3 || tier.pages.empty()) {
      tier.store(step / 8 % 40, step / 320 % 3);
    } else if (step % 8 < 5) {
      tier.use(*tier.pages[index]);
    } else if (step % 8 == 5) {
      tier.pages[index]->hold = static_cast<Hold>(step / 8 % 3);
      policy.update(*tier.pages[index]);
    } else if (step % 8 == 6) {
      tier.drop(*tier.pages[index]);
    } else {
      check(tier);
      if (!tier.pages.empty()) tier.evict();
    }
    RC_ASSERT(policy.size() == tier.pages.size());
    check(tier);
  }
}

// Each tenant stores now and then: all that have pages are active.
bool is_over(const Tier& tier, const EvictionCandidate& page) {
  uint64_t tenants = 0;
  for (uint32_t tenant = 0; tenant < 3; ++tenant) tenants += pages_of(tier, tenant) > 0;
  return pages_of(tier, page.tenant) * tenants > tier.pages.size();
}

// case I2
RC_GTEST_PROP(eviction_policy, lru_agrees_with_a_search, ()) {
  LruPolicy policy;
  random_story(policy, [&](const Tier& tier) {
    if (tier.pages.empty()) return RC_ASSERT(policy.victim() == nullptr);
    const auto order = [&](const EvictionCandidate& page) {
      return std::tuple(!is_over(tier, page), page.hold, page.last_use);
    };
    for (const auto& other : tier.pages) RC_ASSERT(order(*policy.victim()) <= order(*other));
  });
}

RC_GTEST_PROP(eviction_policy, value_agrees_with_a_search, ()) {
  ValuePolicy policy({.capacity = 100, .double_cost_pages = 4});
  random_story(policy, [&](const Tier& tier) {
    if (tier.pages.empty()) return RC_ASSERT(policy.victim() == nullptr);
    const EvictionCandidate& victim = *policy.victim();
    const auto order = [&](const EvictionCandidate& page) {
      return std::tuple(!is_over(tier, page), page.hold, page.policy_rank);
    };
    for (const auto& other : tier.pages) RC_ASSERT(order(victim) <= order(*other));
    RC_ASSERT(policy.trust() <= 1);
    RC_ASSERT(policy.trust() > 0);
  });
}

// case I2
RC_GTEST_PROP(eviction_policy, s3_fifo_takes_from_who_is_over_the_share_and_spares_holds, ()) {
  S3FifoPolicy policy({.capacity = 100});
  random_story(policy, [&](const Tier& tier) {
    if (tier.pages.empty()) return RC_ASSERT(policy.victim() == nullptr);
    const auto order = [&](const EvictionCandidate& page) {
      return std::tuple(!is_over(tier, page), page.hold);
    };
    for (const auto& other : tier.pages) RC_ASSERT(order(*policy.victim()) <= order(*other));
  });
}

RC_GTEST_PROP(eviction_policy, the_same_story_gives_the_same_victims, ()) {
  const auto kind = *rc::gen::elementOf(std::vector(std::begin(kKinds), std::end(kKinds)));
  const auto keys = *rc::gen::container<std::vector<uint8_t>>(rc::gen::arbitrary<uint8_t>());
  const auto victims = [&] {
    auto policy = make_eviction_policy(kind, {.capacity = 16});
    Tier tier(*policy);
    std::vector<uint64_t> gone;
    for (uint8_t key : keys) {
      const auto held = std::find_if(tier.pages.begin(), tier.pages.end(),
                                     [&](auto& page) { return page->key == key % 32; });
      held == tier.pages.end() ? void(tier.store(key % 32)) : tier.use(**held);
      if (tier.pages.size() > 16) gone.push_back(tier.evict());
    }
    return gone;
  };
  RC_ASSERT(victims() == victims());
}

TEST(eviction_policy, names_are_those_of_the_command_line) {
  EXPECT_EQ(parse_eviction_policy("lru"), EvictionPolicyKind::kLru);
  EXPECT_EQ(parse_eviction_policy("s3fifo"), EvictionPolicyKind::kS3Fifo);
  EXPECT_EQ(parse_eviction_policy("value"), EvictionPolicyKind::kValue);
  EXPECT_EQ(parse_eviction_policy("LRU"), std::nullopt);
}

// A lower tier cannot always offer leaves only.
TEST(eviction_policy, of_equal_pages_the_deepest_goes_first) {
  for (EvictionPolicyKind kind : kKinds) {
    auto policy = make_eviction_policy(kind, {.capacity = 100});
    std::vector<EvictionCandidate> path(9);
    for (uint32_t i : {3, 7, 0, 8, 1, 5, 4, 2, 6}) {
      path[i].key = path[i].depth_pages = i + 1;
      policy->admit(i + 1, 0, 1);
      policy->add(path[i]);
    }
    for (uint32_t depth = 9; depth > 0; --depth) {
      EXPECT_EQ(policy->victim()->key, depth);
      policy->remove(*policy->victim());
    }
  }
}

// case I2
TEST(eviction_policy, a_tenant_that_floods_evicts_its_own_pages) {
  for (EvictionPolicyKind kind : kKinds) {
    auto policy = make_eviction_policy(kind, {.capacity = 100});
    Tier tier(*policy);
    for (uint64_t key = 0; key < 45; ++key) tier.store(key, 1);
    for (uint64_t key = 1000; key < 1900; ++key) {
      tier.store(key, 2);
      if (tier.pages.size() > 100) tier.evict();
      if (key % 3 == 0) tier.use(*tier.pages.back());  // and it uses them, too
    }
    EXPECT_EQ(pages_of(tier, 1), 45u);
    EXPECT_EQ(pages_of(tier, 2), 55u);
  }
}

// case I2
TEST(eviction_policy, what_a_tenant_borrowed_goes_back_when_the_others_want_it) {
  LruPolicy policy;
  Tier tier(policy);
  for (uint64_t key = 0; key < 100; ++key) tier.store(key, 1);
  for (uint64_t key = 1000; key < 1090; ++key) {
    tier.store(key, 2);
    tier.evict();
  }
  EXPECT_EQ(pages_of(tier, 1), 50u);
  EXPECT_EQ(pages_of(tier, 2), 50u);
}

TEST(eviction_policy, the_share_of_a_tenant_that_is_long_gone_is_free_for_all) {
  LruPolicy policy;
  Tier tier(policy);
  for (uint64_t key = 0; key < 50; ++key) {
    EvictionCandidate& page = tier.store(key, 1);
    page.hold = Hold::kSession;
    policy.update(page);
  }
  for (uint64_t key = 100; key < 100 + 100 * TenantShares::kActiveTurnovers; ++key) {
    EXPECT_EQ(pages_of(tier, 1), 50u) << key;
    tier.store(key, 2);
    if (tier.pages.size() > 100) tier.evict();
  }
  for (uint64_t key = 10'000; key < 10'120; ++key) {
    tier.store(key, 2);
    tier.evict();
  }
  EXPECT_EQ(pages_of(tier, 1), 0u);
}

// Brings t to 8 ticks: a page's second use comes so long after its first.
void teach_a_gap_of_8(Tier& tier) {
  EvictionCandidate& page = tier.store(7777);
  tier.tick += 8;
  tier.use(page);
  tier.drop(page);
}

TEST(value_policy, halves_the_worth_in_the_typical_time_to_a_second_use) {
  ValuePolicy policy({.capacity = 100});
  Tier tier(policy);
  EXPECT_EQ(policy.halving_ticks(), 0);
  teach_a_gap_of_8(tier);
  EXPECT_NEAR(policy.halving_ticks(), 8, 1e-9);
}

TEST(value_policy, measures_that_time_on_second_uses_only) {
  ValuePolicy policy({.capacity = 100});
  Tier tier(policy);
  EvictionCandidate& page = tier.store(1);
  tier.tick += 8;
  tier.use(page);
  tier.use(page);
  tier.tick += 1000;
  tier.use(page);
  EXPECT_NEAR(policy.halving_ticks(), 8, 1e-9);
}

TEST(value_policy, loses_trust_by_what_lru_would_have_kept_and_wins_it_by_what_lru_would_not) {
  ValuePolicy policy({.capacity = 100});
  Tier tier(policy);
  for (uint64_t key = 0; key < 10; ++key) tier.store(key);
  for (int i = 0; i < 3; ++i) {
    tier.drop(*tier.pages.back());
    tier.store(9);
  }
  EXPECT_LT(policy.trust(), 0.5);
  for (uint64_t key = 100; key < 110; ++key) {  // the first ones are now too old for LRU
    tier.drop(*tier.pages.back());
    tier.store(key);
  }
  const double before = policy.trust();
  tier.use(*tier.pages.back());
  EXPECT_EQ(policy.trust(), before);
  tier.use(*tier.pages.front());
  EXPECT_GT(policy.trust(), 1.2 * before);
}

TEST(value_policy, a_page_used_twice_outlives_one_used_once_for_that_time) {
  for (const uint64_t later : {6, 10}) {
    ValuePolicy policy({.capacity = 100});
    Tier tier(policy);
    teach_a_gap_of_8(tier);
    EvictionCandidate& twice = tier.store(1);
    twice.uses = 2;
    policy.update(twice);
    tier.tick += later;
    EvictionCandidate& once = tier.store(2);
    EXPECT_EQ(policy.victim(), later < 8 ? &once : &twice);
  }
}

TEST(value_policy, a_page_that_comes_back_is_known_by_its_uses) {
  ValuePolicy policy({.capacity = 100});
  Tier tier(policy);
  EvictionCandidate& page = tier.store(5);
  tier.use(page);
  tier.drop(page);
  EXPECT_EQ(tier.store(5).uses, 3u);
  EXPECT_EQ(tier.store(6).uses, 1u);
}

TEST(value_policy, of_equals_the_cheaper_and_the_larger_go_first) {
  ValuePolicy policy({.capacity = 100, .double_cost_pages = 10});
  Tier tier(policy);
  teach_a_gap_of_8(tier);
  EvictionCandidate& deep = tier.store(1);
  EvictionCandidate& shallow = tier.store(2);
  EvictionCandidate& large = tier.store(3);
  deep.depth_pages = 30;
  shallow.depth_pages = large.depth_pages = 1;
  large.size = 2;
  for (EvictionCandidate* page : {&deep, &shallow, &large}) policy.update(*page);
  EXPECT_EQ(tier.evict(), 3u);
  EXPECT_EQ(tier.evict(), 2u);
}

// Pages that were used much and never are again, and new ones that are used twice soon: what was
// learnt of the first half is wrong in the second.
TEST(value_policy, trusts_uses_less_where_lru_does_better_and_tries_again) {
  ValuePolicy policy({.capacity = 64});
  Tier tier(policy);
  for (uint64_t key = 0; key < 60; ++key) tier.store(key);
  for (int round = 0; round < 40; ++round) {
    for (auto& page : tier.pages) tier.use(*page);
  }
  EXPECT_EQ(policy.trust(), 1);
  const auto second_half = [&](uint64_t rounds) {
    double least = 1;
    for (uint64_t i = 0; i < rounds; ++i) {
      for (uint64_t key : {1000 + i % 30, 5000 + i}) {
        const auto held = std::find_if(tier.pages.begin(), tier.pages.end(),
                                       [&](auto& page) { return page->key == key; });
        held == tier.pages.end() ? void(tier.store(key)) : tier.use(**held);
        while (tier.pages.size() > 64) {
          const double rank = policy.victim()->policy_rank;
          for (const auto& page : tier.pages) EXPECT_LE(rank, page->policy_rank);
          tier.evict();
        }
      }
      least = std::min(least, policy.trust());
    }
    return least;
  };
  EXPECT_LT(second_half(600), 0.2);
  const auto resident = std::count_if(tier.pages.begin(), tier.pages.end(),
                                      [](auto& page) { return page->key < 60; });
  EXPECT_LT(resident, 10);
  second_half(20'000);
  EXPECT_GT(policy.trust(), 0.5);
}

TEST(s3_fifo_policy, pages_used_once_go_before_those_used_again) {
  S3FifoPolicy policy({.capacity = 100});
  Tier tier(policy);
  EvictionCandidate& again = tier.store(1);
  for (uint64_t key = 10; key < 20; ++key) tier.store(key);
  tier.use(again);
  for (uint64_t key = 10; key < 20; ++key) EXPECT_EQ(tier.evict(), key);
  EXPECT_EQ(tier.evict(), 1u);
}

TEST(s3_fifo_policy, a_page_that_comes_back_goes_to_the_main_queue) {
  S3FifoPolicy policy({.capacity = 100});
  Tier tier(policy);
  tier.drop(tier.store(1));
  tier.store(1);
  tier.store(2);
  EXPECT_EQ(tier.evict(), 2u);
}

TEST(s3_fifo_policy, a_use_takes_a_page_round_once_more) {
  S3FifoPolicy policy({.capacity = 100});
  Tier tier(policy);
  EvictionCandidate& often = tier.store(1);
  EvictionCandidate& twice = tier.store(2);
  for (int i = 0; i < 3; ++i) tier.use(often);
  tier.use(twice);
  EXPECT_EQ(tier.evict(), 2u);  // it was used last, but less
}

}  // namespace
}  // namespace spillway::cache
