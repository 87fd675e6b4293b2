#include "kernels/futex.h"

#include <chrono>

namespace spillway::kernels {

uint32_t pauses_per_us() {
  static const uint32_t measured = [] {
    using namespace std::chrono;
    constexpr uint32_t kPauses = 1000;
    int64_t ns_best = INT64_MAX;  // the least of three: the others were interrupted
    for (int i = 0; i < 3; ++i) {
      const auto begin = steady_clock::now();
      for (uint32_t n = 0; n < kPauses; ++n) spin_pause();
      const nanoseconds taken = steady_clock::now() - begin;
      ns_best = std::min<int64_t>(ns_best, taken.count());
    }
    const int64_t per_us = kPauses * 1000 / std::max<int64_t>(ns_best, 1);
    return static_cast<uint32_t>(std::clamp<int64_t>(per_us, 1, 1000));
  }();
  return measured;
}

}  // namespace spillway::kernels
