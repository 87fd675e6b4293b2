// The reference policy: the leaf whose last page was used least recently goes first. A binary heap
// of the candidates; every operation is O(log leaves).
#pragma once

#include <vector>

#include "cache/eviction_policy.h"

namespace spillway::cache {

class LruPolicy final : public EvictionPolicy {
 public:
  void add(EvictionCandidate& leaf) override;
  void update(EvictionCandidate& leaf) override;
  void remove(EvictionCandidate& leaf) override;
  EvictionCandidate* victim() override;
  uint32_t size() const override;

 private:
  void place(EvictionCandidate* leaf, uint32_t index);
  void sift_up(uint32_t index);
  void sift_down(uint32_t index);

  std::vector<EvictionCandidate*> heap_;  // heap_[0] goes first
};

}  // namespace spillway::cache
