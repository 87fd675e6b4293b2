#include "cache/fair_queue.h"

#include "runtime/check.h"

namespace spillway::cache {

void FairQueue::add(EvictionCandidate& page) {
  if (page.tenant >= heaps_.size()) heaps_.resize(page.tenant + 1);
  heaps_[page.tenant].add(page);
  ++size_;
}

void FairQueue::remove(EvictionCandidate& page) {
  CHECK(page.tenant < heaps_.size());
  heaps_[page.tenant].remove(page);
  --size_;
}

EvictionCandidate* FairQueue::front() const {
  EvictionCandidate* best = nullptr;
  bool best_over = false;
  for (uint32_t tenant = 0; tenant < heaps_.size(); ++tenant) {
    EvictionCandidate* page = heaps_[tenant].front();
    if (page == nullptr) continue;
    const bool over = shares_.is_over(tenant);
    if (best != nullptr && over < best_over) continue;
    if (best == nullptr || over > best_over || CandidateOrder::before(*page, *best)) {
      best = page;
      best_over = over;
    }
  }
  return best;
}

}  // namespace spillway::cache
