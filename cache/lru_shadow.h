// What an LRU cache of the same size would hold now: the pages used last, as many as fit. It is
// known exactly from the last uses of the pages that are here or are remembered, because every use
// is told. A histogram of last uses and the tick behind which pages no longer fit; amortised O(1).
#pragma once

#include <cstdint>
#include <deque>

namespace spillway::cache {

class LruShadow {
 public:
  static constexpr uint64_t kTicksMax = 1u
                                        << 20;  // of the histogram; pages older than that are out

  // The last use of `pages` pages moves from `from` (0: unknown before) to `to`, which is no
  // earlier than any before. `capacity`: pages that fit.
  void used(uint64_t from, uint64_t to, uint32_t pages, uint64_t capacity);
  bool holds(uint64_t last_use) const { return last_use > horizon_; }

 private:
  uint64_t horizon_ = 0;         // pages used later than this fit
  std::deque<uint32_t> counts_;  // [tick - horizon_ - 1] pages
  uint64_t pages_ = 0;           // sum of counts_
};

}  // namespace spillway::cache
