// How long operations took, counted in fixed buckets: a value that is copied with the other
// figures. Owner and thread: who counts. Observing costs a search over 18 bounds, about 10 ns.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "runtime/clock.h"

namespace spillway {

class LatencyHistogram {
 public:
  // Upper bounds in seconds, from a page out of memory (20 us) to a stalled disk; each is in its
  // own bucket. What takes longer falls in the last one, which has no bound.
  static constexpr std::array<double, 18> kBoundsS = {20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3,
                                                      2e-3,  5e-3,  10e-3,  20e-3,  50e-3,  0.1,
                                                      0.2,   0.5,   1,      2,      5,      10};

  void observe(Clock::Duration took) {
    const double seconds = std::chrono::duration<double>(took).count();
    const auto bucket = std::lower_bound(kBoundsS.begin(), kBoundsS.end(), seconds);
    ++counts_[static_cast<size_t>(bucket - kBoundsS.begin())];
    ++count_;
    sum_s_ += seconds;
  }

  // Of those that fell between this bound and the one before.
  uint64_t in_bucket(size_t index) const { return counts_[index]; }
  uint64_t count() const { return count_; }
  double sum_s() const { return sum_s_; }

 private:
  std::array<uint64_t, kBoundsS.size() + 1> counts_{};
  uint64_t count_ = 0;
  double sum_s_ = 0;
};

}  // namespace spillway
