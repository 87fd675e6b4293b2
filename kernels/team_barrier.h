// The barrier of a team of threads: a counter and a phase. Arriving costs one atomic add; waiting
// spins within the caller's budget, then sleeps.
// Sketch: two cache lines change hands; bench/runtime_bench (team_barrier) measures it.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/futex.h"

namespace spillway::kernels {

class TeamBarrier {
 public:
  explicit TeamBarrier(uint32_t count) : count_(count) {}

  // Returns when all `count` threads have called it in this phase; what each wrote before is
  // visible to all after.
  void arrive_and_wait(SpinBudget& spin) {
    if (count_ == 1) return;
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      arrived_.store(0, std::memory_order_relaxed);
      // Ordered before the look at sleepers_: either a sleeper sees the new phase, or we see it.
      phase_.fetch_add(1, std::memory_order_seq_cst);
      if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(phase_);
      return;
    }
    const auto passed = [&] { return phase_.load(std::memory_order_acquire) != phase; };
    if (spin.spin_until(passed)) return;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (!passed()) futex_wait(phase_, phase);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  const uint32_t count_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace spillway::kernels
