// Eviction candidates of many tenants. The front is the first in CandidateOrder among those of
// tenants that hold more than their share; of all, where no such tenant has a candidate.
//
// Adding, moving and removing takes O(log candidates); front() looks once at each tenant.
#pragma once

#include <vector>

#include "cache/candidate_heap.h"
#include "cache/tenant_shares.h"

namespace spillway::cache {

class FairQueue {
 public:
  // `shares` outlives the queue and is kept up to date by its owner.
  explicit FairQueue(const TenantShares& shares) : shares_(shares) {}

  void add(EvictionCandidate& page);
  void update(EvictionCandidate& page) { heaps_[page.tenant].update(page); }
  void remove(EvictionCandidate& page);
  EvictionCandidate* front() const;
  uint32_t size() const { return size_; }

  // Calls rank(candidate) on each, which may change its rank. O(candidates).
  template <class Rank>
  void rerank(Rank rank) {
    for (CandidateHeap& heap : heaps_) heap.reorder(rank);
  }

 private:
  const TenantShares& shares_;
  std::vector<CandidateHeap> heaps_;  // [tenant]
  uint32_t size_ = 0;
};

}  // namespace spillway::cache
