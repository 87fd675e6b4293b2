#include "cache/candidate_heap.h"

#include "runtime/check.h"

namespace spillway::cache {

bool CandidateHeap::goes_before(const EvictionCandidate& a, const EvictionCandidate& b) {
  if (a.hold != b.hold) return a.hold < b.hold;
  if (a.policy_rank != b.policy_rank) return a.policy_rank < b.policy_rank;
  return a.depth_pages > b.depth_pages;
}

void CandidateHeap::add(EvictionCandidate& page) {
  heap_.push_back(&page);
  page.policy_index = size() - 1;
  sift_up(page.policy_index);
}

void CandidateHeap::update(EvictionCandidate& page) {
  CHECK(page.policy_index < heap_.size());
  CHECK(heap_[page.policy_index] == &page);
  sift_up(page.policy_index);
  sift_down(page.policy_index);
}

void CandidateHeap::remove(EvictionCandidate& page) {
  CHECK(page.policy_index < heap_.size());
  CHECK(heap_[page.policy_index] == &page);
  EvictionCandidate* last = heap_.back();
  heap_.pop_back();
  if (last == &page) return;
  place(last, page.policy_index);
  update(*last);
}

void CandidateHeap::place(EvictionCandidate* page, uint32_t index) {
  heap_[index] = page;
  page->policy_index = index;
}

void CandidateHeap::sift_up(uint32_t index) {
  EvictionCandidate* page = heap_[index];
  while (index > 0) {
    const uint32_t parent = (index - 1) / 2;
    if (!goes_before(*page, *heap_[parent])) break;
    place(heap_[parent], index);
    index = parent;
  }
  place(page, index);
}

void CandidateHeap::sift_down(uint32_t index) {
  EvictionCandidate* page = heap_[index];
  for (;;) {
    uint32_t child = 2 * index + 1;
    if (child >= size()) break;
    if (child + 1 < size() && goes_before(*heap_[child + 1], *heap_[child])) ++child;
    if (!goes_before(*heap_[child], *page)) break;
    place(heap_[child], index);
    index = child;
  }
  place(page, index);
}

}  // namespace spillway::cache
