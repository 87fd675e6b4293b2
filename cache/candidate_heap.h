// Eviction candidates in the order in which they go: by hold, then rank, then the deeper first (a
// page is of no use without those before it).
#pragma once

#include "cache/eviction_policy.h"
#include "runtime/indexed_heap.h"

namespace spillway::cache {

struct CandidateOrder {
  static bool before(const EvictionCandidate& a, const EvictionCandidate& b) {
    if (a.hold != b.hold) return a.hold < b.hold;
    if (a.policy_rank != b.policy_rank) return a.policy_rank < b.policy_rank;
    return a.depth_pages > b.depth_pages;
  }
  static uint32_t& index(EvictionCandidate& page) { return page.policy_index; }
};

using CandidateHeap = IndexedHeap<EvictionCandidate, CandidateOrder>;

}  // namespace spillway::cache
