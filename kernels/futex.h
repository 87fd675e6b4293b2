// Sleeping on a word of memory, and spinning before it: what the CPU device's workers wait with.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>

namespace spillway::kernels {

// Sleeps while `word` is `expected`; may return early.
inline void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

inline void futex_wake_all(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

inline void spin_pause() { __builtin_ia32_pause(); }

// How many pauses fit a microsecond on this machine (about 7 to 100); measured once.
uint32_t pauses_per_us();

// How long one worker spins before it sleeps. Spinning that pays off (the wait ended within it)
// doubles the budget, spinning that did not halves it: on a machine with fewer free processors than
// workers it falls to the least, and what they wait for gets the processor.
class SpinBudget {
 public:
  SpinBudget(uint32_t us_min, uint32_t us_max)
      : min_(us_min * pauses_per_us()), max_(us_max * pauses_per_us()), now_(max_) {}

  // Spins until `ready()`; false when the budget ran out first.
  template <class Ready>
  bool spin_until(Ready ready) {
    for (uint32_t i = 0; i < now_; ++i) {
      if (ready()) {
        now_ = std::min(max_, now_ * 2);
        return true;
      }
      spin_pause();
    }
    now_ = std::max(min_, now_ / 2);
    return ready();
  }

 private:
  uint32_t min_, max_, now_;  // pauses
};

}  // namespace spillway::kernels
