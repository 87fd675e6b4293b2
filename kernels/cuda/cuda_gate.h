// A CUDA device's Gate: a word of pinned memory that the engine raises and streams wait for
// (cuStreamWaitValue32, greater or equal).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/cuda/cuda_parts.h"
#include "kernels/device.h"
#include "runtime/check.h"

namespace spillway::kernels::cuda {

class CudaGate final : public kernels::Gate {
 public:
  explicit CudaGate(std::shared_ptr<CudaParts> parts)
      : parts_(std::move(parts)), word_(parts_->gates.take()) {}
  ~CudaGate() override {
    const bool lets_all_pass = level_ >= waited_for_ || parts_->health->ended();
    CHECK(lets_all_pass);
    parts_->gates.give_back(word_, waits_);
  }

  void raise(uint32_t level) override {
    if (level > level_) word_.host->store(level_ = level, std::memory_order_release);
  }
  void abandon() override {
    abandoned_.store(true, std::memory_order_release);
    raise(kGateOpen);
  }
  bool abandoned() const override { return abandoned_.load(std::memory_order_acquire); }

  // Puts the wait into the order of stream number `index`.
  void hold(cudaStream_t stream, uint32_t index, uint32_t level) const {
    CHECK(level < kGateOpen);
    Health& health = *parts_->health;
    if (level_ >= level || !health.enter()) return;
    waited_for_ = std::max(waited_for_, level);
    const StreamValues& values = parts_->values;
    if (!health.ok(values.wait(stream, word_.device, level, CU_STREAM_WAIT_VALUE_GEQ),
                   "cuStreamWaitValue32")) {
      return;
    }
    waits_[index] = parts_->gates.next_wait(index);
    health.ok(values.write(stream, parts_->gates.passed(index).device, waits_[index],
                           CU_STREAM_WRITE_VALUE_DEFAULT),
              "cuStreamWriteValue32");
  }

 private:
  const std::shared_ptr<CudaParts> parts_;
  const Word word_;
  uint32_t level_ = 0;
  mutable uint32_t waited_for_ = 0;   // the highest level
  mutable GateWords::Waits waits_{};  // what streams know of the gate is theirs, not its state
  std::atomic<bool> abandoned_{false};
};

}  // namespace spillway::kernels::cuda
