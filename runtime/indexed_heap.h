// A binary heap of entries that know their own place in it, so that any of them can be moved or
// taken out in O(log n), without a search.
//
// The entries are their owners': each stays where it is from add() to remove(). `Order` says
//   static bool before(const Entry& a, const Entry& b);  // a strict weak order
//   static uint32_t& index(Entry& entry);  // the heap's own, while the entry is in it
// Equal entries come out in any order. Fewer than 2^32 entries; one thread.
//
// A template because it is in the way of every sleep of a coroutine (timer_heap.h) and of every use
// of a page (cache/candidate_heap.h): the comparison is to be inlined.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/check.h"

namespace spillway {

template <class Entry, class Order>
class IndexedHeap {
 public:
  // REQUIRES: it is in no heap. O(log n).
  void add(Entry& entry) {
    heap_.push_back(&entry);
    sift_up(size() - 1);
  }
  // Its order has changed. REQUIRES: it is in this heap. O(log n).
  void update(Entry& entry) {
    const uint32_t index = place_of(entry);
    sift_up(index);
    sift_down(Order::index(entry));
  }
  // REQUIRES: it is in this heap. O(log n).
  void remove(Entry& entry) {
    const uint32_t index = place_of(entry);
    Entry* last = heap_.back();
    heap_.pop_back();
    if (last == &entry) return;
    place(last, index);
    update(*last);
  }
  // Calls change(entry) on each, which may change its order. O(n).
  template <class Change>
  void reorder(Change change) {
    for (Entry* entry : heap_) change(*entry);
    for (uint32_t i = size() / 2; i > 0; --i) sift_down(i - 1);
  }

  Entry* front() const { return heap_.empty() ? nullptr : heap_.front(); }
  uint32_t size() const { return static_cast<uint32_t>(heap_.size()); }

  // By a full walk; CHECKs.
  void check_integrity() const {
    for (uint32_t i = 0; i < size(); ++i) {
      CHECK(Order::index(*heap_[i]) == i);
      if (i > 0) CHECK(!Order::before(*heap_[i], *heap_[(i - 1) / 2]));
    }
  }

 private:
  uint32_t place_of(Entry& entry) const {
    const uint32_t index = Order::index(entry);
    CHECK(index < heap_.size());
    CHECK(heap_[index] == &entry);
    return index;
  }
  void place(Entry* entry, uint32_t index) {
    heap_[index] = entry;
    Order::index(*entry) = index;
  }
  void sift_up(uint32_t index) {
    Entry* entry = heap_[index];
    while (index > 0) {
      const uint32_t parent = (index - 1) / 2;
      if (!Order::before(*entry, *heap_[parent])) break;
      place(heap_[parent], index);
      index = parent;
    }
    place(entry, index);
  }
  void sift_down(uint32_t index) {
    Entry* entry = heap_[index];
    for (;;) {
      uint32_t child = 2 * index + 1;
      if (child >= size()) break;
      if (child + 1 < size() && Order::before(*heap_[child + 1], *heap_[child])) ++child;
      if (!Order::before(*heap_[child], *entry)) break;
      place(heap_[child], index);
      index = child;
    }
    place(entry, index);
  }

  std::vector<Entry*> heap_;  // heap_[0] comes first
};

}  // namespace spillway
