// A CUDA device's Event. Other streams wait for an event of CUDA's; the host looks at a word that
// the stream writes before it, or asks CUDA where streams cannot write. What is recorded is a
// generation number, which the word reaches. So CUDA's event may still be under way when this one
// is done; it may be recorded again then, or destroyed, as CUDA has it.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/cuda_parts.h"
#include "kernels/device.h"

namespace spillway::kernels::cuda {

// Outlives the event while somebody has yet to be resumed.
class EventState {
 public:
  explicit EventState(std::shared_ptr<CudaParts> parts);
  ~EventState();  // REQUIRES: done(), for the word becomes another's
  EventState(const EventState&) = delete;
  EventState& operator=(const EventState&) = delete;

  // Puts the point into the stream's order. REQUIRES: done().
  void record(cudaStream_t stream);
  uint32_t recorded() const { return recorded_; }
  bool done() { return reached(recorded_); }
  // True also of a device that has ended: nothing of it is still to come.
  bool reached(uint32_t generation);
  // Asks CUDA, which may tell of an error: the device has ended then.
  bool ask();
  cudaEvent_t native() const { return native_; }
  const std::shared_ptr<CudaParts>& parts() const { return parts_; }

 private:
  const std::shared_ptr<CudaParts> parts_;
  Word word_;                     // none where streams cannot write
  cudaEvent_t native_ = nullptr;  // none where the device has ended
  uint32_t recorded_ = 0;
  uint32_t asked_ = 0;  // without a word: the generation that CUDA has said is reached
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(std::shared_ptr<CudaParts> parts)
      : state_(std::make_shared<EventState>(std::move(parts))) {}
  ~CudaEvent() override;

  bool done() const override { return state_->done(); }
  Task<> wait() override;
  EventState& state() const { return *state_; }

 private:
  const std::shared_ptr<EventState> state_;
};

}  // namespace spillway::kernels::cuda
