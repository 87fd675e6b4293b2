#include "runtime/timer_heap.h"

namespace spillway {

void TimerHeap::add(Entry& entry, Clock::TimePoint at) {
  CHECK(!entry.queued());
  entry.at_ = at;
  entry.order_ = order_next_++;
  heap_.push_back(nullptr);
  place(heap_.size() - 1, &entry);
  sift_up(entry.index_);
}

void TimerHeap::remove(Entry& entry) {
  const size_t index = entry.index_;
  CHECK(index < heap_.size());
  CHECK(heap_[index] == &entry);
  Entry* last = heap_.back();
  heap_.pop_back();
  entry.index_ = Entry::kNowhere;
  if (last == &entry) return;
  place(index, last);
  sift_up(index);
  sift_down(last->index_);
}

TimerHeap::Entry* TimerHeap::pop_due(Clock::TimePoint now) {
  if (heap_.empty() || heap_.front()->at_ > now) return nullptr;
  Entry* entry = heap_.front();
  remove(*entry);
  return entry;
}

std::optional<Clock::TimePoint> TimerHeap::next() const {
  if (heap_.empty()) return std::nullopt;
  return heap_.front()->at_;
}

void TimerHeap::sift_up(size_t index) {
  Entry* entry = heap_[index];
  while (index > 0) {
    const size_t parent = (index - 1) / 2;
    if (!before(*entry, *heap_[parent])) break;
    place(index, heap_[parent]);
    index = parent;
  }
  place(index, entry);
}

void TimerHeap::sift_down(size_t index) {
  Entry* entry = heap_[index];
  for (;;) {
    size_t child = 2 * index + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && before(*heap_[child + 1], *heap_[child])) ++child;
    if (!before(*heap_[child], *entry)) break;
    place(index, heap_[child]);
    index = child;
  }
  place(index, entry);
}

void TimerHeap::check_integrity() const {
  for (size_t i = 0; i < heap_.size(); ++i) {
    CHECK(heap_[i]->index_ == i);
    if (i > 0) CHECK(!before(*heap_[i], *heap_[(i - 1) / 2]));
  }
}

}  // namespace spillway
