#include "kernels/cpu_event.h"

#include <utility>

#include "runtime/check.h"

namespace spillway::kernels {

uint32_t CpuEventState::begin_record() {
  CHECK(reached(recorded_));
  return ++recorded_;
}

void CpuEventState::complete(uint32_t generation) {
  std::vector<Resumer> resumed;
  {
    const std::lock_guard lock(mutex_);
    completed_.store(generation, std::memory_order_seq_cst);
    resumed.swap(waiting_);
  }
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(completed_);
  for (Resumer& resumer : resumed) resumer.resume();
}

void CpuEventState::block_until(uint32_t generation, SpinBudget& spin) {
  if (spin.spin_until([&] { return reached(generation); })) return;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t completed = completed_.load(std::memory_order_acquire);
    if (static_cast<int32_t>(completed - generation) >= 0) break;
    futex_wait(completed_, completed);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void CpuEventState::resume_when_done(Resumer resumer) {
  {
    const std::lock_guard lock(mutex_);
    if (!reached(recorded_)) {
      waiting_.push_back(std::move(resumer));
      return;
    }
  }
  resumer.resume();
}

namespace {

struct WaitOp {
  std::shared_ptr<CpuEventState> state;
  void start(Resumer resumer) { state->resume_when_done(std::move(resumer)); }
};

}  // namespace

Task<> CpuEvent::wait() {
  WaitOp op{state_};
  if (!done()) co_await suspend(op);
}

}  // namespace spillway::kernels
