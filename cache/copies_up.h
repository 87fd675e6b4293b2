// Copies to a device with memory of its own, one for each page or band that comes up, each by a
// coroutine that knows of no other. Those that are ready in the same turn of the loop go out as one
// batch behind which one event is recorded: a stream sends what it has gathered when something else
// is enqueued (kernels/cuda/cuda_stream.h), so an event a page would be a call of CUDA's a page.
//
// Engine thread. Bound: an event for each batch under way, which has a coroutine at least.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "kernels/device.h"
#include "runtime/task.h"

namespace spillway::cache {

class CopiesUp {
 public:
  // The device must outlive it, and it the copies.
  explicit CopiesUp(kernels::Device& device) : device_(device) {}
  CopiesUp(const CopiesUp&) = delete;
  CopiesUp& operator=(const CopiesUp&) = delete;

  // Suspends until the bytes are there, or the device has ended. Both memories belong to the copy
  // until then. Not cancellable.
  Task<> copy(std::byte* to, std::span<const std::byte> from);

 private:
  kernels::Device& device_;
  std::shared_ptr<kernels::Event> gathering_;  // to be recorded behind what was copied this turn
};

}  // namespace spillway::cache
