// The timers of an EngineLoop: a heap whose entries live in the frames of sleeping coroutines.
// Equal deadlines come out in the order they went in. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/indexed_heap.h"

namespace spillway {

class TimerHeap {
 public:
  // In the heap from add() until pop_due() or remove(). Must be out of it when it dies.
  class Entry {
   public:
    Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    bool queued() const { return index_ != kNowhere; }

   protected:
    ~Entry() { CHECK(!queued()); }

   private:
    friend class TimerHeap;
    static constexpr uint32_t kNowhere = UINT32_MAX;
    Clock::TimePoint at_{};
    uint64_t order_ = 0;
    uint32_t index_ = kNowhere;
  };

  // REQUIRES: !entry.queued(). O(log n).
  void add(Entry& entry, Clock::TimePoint at);
  // REQUIRES: entry.queued(). O(log n).
  void remove(Entry& entry);
  // Takes out the earliest entry that is due at `now`; null when there is none.
  Entry* pop_due(Clock::TimePoint now);
  std::optional<Clock::TimePoint> next() const;
  size_t size() const { return heap_.size(); }
  void check_integrity() const { heap_.check_integrity(); }

 private:
  struct Order {
    static bool before(const Entry& a, const Entry& b) {
      return a.at_ != b.at_ ? a.at_ < b.at_ : a.order_ < b.order_;
    }
    static uint32_t& index(Entry& entry) { return entry.index_; }
  };

  IndexedHeap<Entry, Order> heap_;
  uint64_t order_next_ = 0;
};

}  // namespace spillway
