// The CPU device's Event: what is recorded is a generation number, counted up by record() and
// reached when the stream gets there. The state is shared with the operations that name it, so an
// event may be destroyed while a stream has yet to look at it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/device.h"
#include "kernels/futex.h"
#include "runtime/suspend.h"

namespace spillway::kernels {

class CpuEventState {
 public:
  // Engine thread. REQUIRES: what was recorded last has completed.
  uint32_t begin_record();
  uint32_t recorded() const { return recorded_; }

  // A worker, or for a gate the engine: `generation` is reached. Resumes the coroutines that wait
  // for it.
  void complete(uint32_t generation);
  // A worker: blocks until `generation` is reached.
  void block_until(uint32_t generation, SpinBudget& spin);

  bool reached(uint32_t generation) const {
    return static_cast<int32_t>(completed_.load(std::memory_order_acquire) - generation) >= 0;
  }
  // Resumes when all that was recorded by now has completed. Engine thread.
  void resume_when_done(Resumer resumer);

 private:
  uint32_t recorded_ = 0;  // engine thread
  std::atomic<uint32_t> completed_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::mutex mutex_;
  std::vector<Resumer> waiting_;  // under mutex_
};

class CpuEvent final : public Event {
 public:
  bool done() const override { return state_->reached(state_->recorded()); }
  Task<> wait() override;
  const std::shared_ptr<CpuEventState>& state() const { return state_; }

 private:
  std::shared_ptr<CpuEventState> state_ = std::make_shared<CpuEventState>();
};

}  // namespace spillway::kernels
