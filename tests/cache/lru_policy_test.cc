// The reference policy's order, against a search of all candidates.
#include "cache/lru_policy.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>

namespace spillway::cache {
namespace {

EvictionCandidate candidate(uint64_t last_use, bool session) {
  EvictionCandidate made;
  made.last_use = last_use;
  made.hold = session ? Hold::kSession : Hold::kNone;
  return made;
}

TEST(lru_policy, has_no_victim_when_empty) {
  LruPolicy policy;
  EXPECT_EQ(policy.victim(), nullptr);
  EXPECT_EQ(policy.size(), 0u);
}

TEST(lru_policy, sessions_go_after_all_others_however_old) {
  LruPolicy policy;
  EvictionCandidate old_session = candidate(1, true), young = candidate(9, false);
  policy.add(old_session);
  policy.add(young);
  EXPECT_EQ(policy.victim(), &young);
  policy.remove(young);
  EXPECT_EQ(policy.victim(), &old_session);
}

RC_GTEST_PROP(lru_policy, agrees_with_a_search, ()) {
  LruPolicy policy;
  std::vector<std::unique_ptr<EvictionCandidate>> all;
  uint64_t tick = 0;
  const auto steps = *rc::gen::container<std::vector<uint32_t>>(rc::gen::arbitrary<uint32_t>());
  for (uint32_t step : steps) {
    const size_t index = all.empty() ? 0 : (step / 8) % all.size();
    if (step % 8 < 4 || all.empty()) {
      all.push_back(
          std::make_unique<EvictionCandidate>(candidate(++tick + step % 5 * 100, step % 3 == 0)));
      policy.add(*all.back());
    } else if (step % 8 < 6) {
      all[index]->last_use += step % 1000;
      all[index]->hold = step % 2 == 0 ? Hold::kSession : Hold::kNone;
      policy.update(*all[index]);
    } else {
      policy.remove(*all[index]);
      all.erase(all.begin() + static_cast<ptrdiff_t>(index));
    }
    RC_ASSERT(policy.size() == all.size());
    for (const auto& other : all) {
      const EvictionCandidate& victim = *policy.victim();
      RC_ASSERT(std::pair(victim.hold, victim.last_use) <= std::pair(other->hold, other->last_use));
    }
  }
}

}  // namespace
}  // namespace spillway::cache
