// The CPU device's Gate: an event state whose generation is the level. What waits for a level
// sleeps on it as for an event.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "kernels/cpu_event.h"

namespace spillway::kernels {

class CpuGate final : public Gate {
 public:
  void raise(uint32_t level) override {
    if (level > level_) state_->complete(level_ = level);
  }
  void abandon() override {
    abandoned_.store(true, std::memory_order_release);
    raise(kOpen);
  }
  bool abandoned() const override { return abandoned_.load(std::memory_order_acquire); }
  const std::shared_ptr<CpuEventState>& state() const { return state_; }

 private:
  static constexpr uint32_t kOpen = 1u << 30;  // above every level that is waited for

  std::shared_ptr<CpuEventState> state_ = std::make_shared<CpuEventState>();
  uint32_t level_ = 0;  // engine thread
  std::atomic<bool> abandoned_{false};
};

}  // namespace spillway::kernels
