#include "cache/lru_policy.h"

#include <tuple>

#include "runtime/check.h"

namespace spillway::cache {
namespace {

bool goes_before(const EvictionCandidate& a, const EvictionCandidate& b) {
  return std::tie(a.session, a.last_use) < std::tie(b.session, b.last_use);
}

}  // namespace

void LruPolicy::add(EvictionCandidate& leaf) {
  heap_.push_back(&leaf);
  leaf.policy_index = size() - 1;
  sift_up(leaf.policy_index);
}

void LruPolicy::update(EvictionCandidate& leaf) {
  CHECK(leaf.policy_index < heap_.size());
  CHECK(heap_[leaf.policy_index] == &leaf);
  sift_up(leaf.policy_index);
  sift_down(leaf.policy_index);
}

void LruPolicy::remove(EvictionCandidate& leaf) {
  CHECK(leaf.policy_index < heap_.size());
  CHECK(heap_[leaf.policy_index] == &leaf);
  EvictionCandidate* last = heap_.back();
  heap_.pop_back();
  if (last == &leaf) return;
  place(last, leaf.policy_index);
  update(*last);
}

EvictionCandidate* LruPolicy::victim() { return heap_.empty() ? nullptr : heap_.front(); }

uint32_t LruPolicy::size() const { return static_cast<uint32_t>(heap_.size()); }

void LruPolicy::place(EvictionCandidate* leaf, uint32_t index) {
  heap_[index] = leaf;
  leaf->policy_index = index;
}

void LruPolicy::sift_up(uint32_t index) {
  EvictionCandidate* leaf = heap_[index];
  while (index > 0) {
    const uint32_t parent = (index - 1) / 2;
    if (!goes_before(*leaf, *heap_[parent])) break;
    place(heap_[parent], index);
    index = parent;
  }
  place(leaf, index);
}

void LruPolicy::sift_down(uint32_t index) {
  EvictionCandidate* leaf = heap_[index];
  for (;;) {
    uint32_t child = 2 * index + 1;
    if (child >= size()) break;
    if (child + 1 < size() && goes_before(*heap_[child + 1], *heap_[child])) ++child;
    if (!goes_before(*heap_[child], *leaf)) break;
    place(heap_[child], index);
    index = child;
  }
  place(leaf, index);
}

}  // namespace spillway::cache
