// Eviction candidates in the order in which they go: by hold, then rank, then the deeper first (a
// page is of no use without those before it). A binary heap that knows where each candidate is, so
// that any of them can be moved or taken out in O(log n).
#pragma once

#include <vector>

#include "cache/eviction_policy.h"

namespace spillway::cache {

class CandidateHeap {
 public:
  static bool goes_before(const EvictionCandidate& a, const EvictionCandidate& b);

  void add(EvictionCandidate& page);
  void update(EvictionCandidate& page);
  void remove(EvictionCandidate& page);
  EvictionCandidate* front() const { return heap_.empty() ? nullptr : heap_.front(); }
  uint32_t size() const { return static_cast<uint32_t>(heap_.size()); }

  // Calls rank(candidate) on each, which may change its rank, and restores the order. O(n).
  template <class Rank>
  void rerank(Rank rank) {
    for (EvictionCandidate* page : heap_) rank(*page);
    for (uint32_t i = size() / 2; i > 0; --i) sift_down(i - 1);
  }

 private:
  void place(EvictionCandidate* page, uint32_t index);
  void sift_up(uint32_t index);
  void sift_down(uint32_t index);

  std::vector<EvictionCandidate*> heap_;  // heap_[0] goes first
};

}  // namespace spillway::cache
