// The policy that knows the future: the page that is wanted again last, or never, goes first.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "cache/candidate_heap.h"

namespace spillway::replay {

class OptimumPolicy final : public cache::EvictionPolicy {
 public:
  using Uses = std::unordered_map<uint64_t, std::vector<uint64_t>>;  // key -> ticks, rising
  explicit OptimumPolicy(const Uses& uses) : uses_(uses) {}

  cache::PageMemory admit(uint64_t, uint32_t, uint64_t) override { return {}; }
  void found(const cache::PageMemory&, uint32_t, uint64_t) override {}
  void used(uint64_t, uint64_t, uint32_t) override {}
  void gone(const cache::EvictionCandidate&) override {}
  void add(cache::EvictionCandidate& page) override {
    page.policy_rank = -next_use(page);
    heap_.add(page);
  }
  void update(cache::EvictionCandidate& page) override {
    page.policy_rank = -next_use(page);
    heap_.update(page);
  }
  void remove(cache::EvictionCandidate& page) override { heap_.remove(page); }
  cache::EvictionCandidate* victim() override { return heap_.front(); }
  uint32_t size() const override { return heap_.size(); }

 private:
  double next_use(const cache::EvictionCandidate& page) const {
    const std::vector<uint64_t>& ticks = uses_.at(page.key);
    const auto next = std::upper_bound(ticks.begin(), ticks.end(), page.last_use);
    return next == ticks.end() ? 1e18 : static_cast<double>(*next);
  }

  const Uses& uses_;
  cache::CandidateHeap heap_;
};

}  // namespace spillway::replay
