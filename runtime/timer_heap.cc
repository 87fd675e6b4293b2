#include "runtime/timer_heap.h"

namespace spillway {

void TimerHeap::add(Entry& entry, Clock::TimePoint at) {
  CHECK(!entry.queued());
  entry.at_ = at;
  entry.order_ = order_next_++;
  heap_.add(entry);
}

void TimerHeap::remove(Entry& entry) {
  heap_.remove(entry);
  entry.index_ = Entry::kNowhere;
}

TimerHeap::Entry* TimerHeap::pop_due(Clock::TimePoint now) {
  Entry* entry = heap_.front();
  if (entry == nullptr || entry->at_ > now) return nullptr;
  remove(*entry);
  return entry;
}

std::optional<Clock::TimePoint> TimerHeap::next() const {
  const Entry* entry = heap_.front();
  if (entry == nullptr) return std::nullopt;
  return entry->at_;
}

}  // namespace spillway
