// A GPU: its memory is memory of its own, its streams are three of CUDA's, none the default one.
// What it does within what device.h promises:
//
// - launch(work) calls `work` at once, on the calling thread, with a team of one: `work` enqueues
//   kernels on native(). What host code looks at in there is as of then: a clock, gate.abandoned().
//   Kernels behind a gate that was abandoned run over memory that nobody filled.
// - copy() goes out together with the copies next to it, as one batch, when the stream's next other
//   operation comes: at the latest, the record() without which nobody may use what was copied.
// - What is copied is memory of this device, or host memory of allocate_host().
// - An event's wait() is awaited on an EngineLoop, by all who wait at one time on the same. No
//   thread waits: the stream writes a word of pinned memory, at which the loop looks
//   (EngineLoop::Poller). Nothing here waits for the GPU but the device's making and end,
//   allocations, and the moment at which it fails.
//
// Failure: an error that CUDA keeps (a kernel's bad access, an ECC error, a GPU that is gone), or
// any call that enqueues and is refused, since what follows it counts on what it was to do. All
// gates are opened then, and what still runs has ended before failure() says so. The destructor
// gives back what the driver holds for a device that was lost (cudaDeviceReset), so that the
// process may try to make another; the driver may refuse until the process is a new one.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/graph.h"
#include "kernels/device.h"
#include "runtime/result.h"

struct CUstream_st;

namespace spillway::kernels {

namespace cuda {
class Health;
}

class CudaDevice : public Device {
 public:
  // The stream that operators are enqueued on (kernels/cuda/operators.h), in the order of this
  // device's calls: ask for it within a launch(). `stream` is one of this device's.
  virtual CUstream_st* native(Stream& stream) const = 0;
  // What an operator returned. Other than 0: the device ends.
  virtual void take_error_of(const char* operator_name, int error) = 0;
  virtual int index() const = 0;  // among the GPUs that the process sees
  // For what runs on several devices at once (nccl_collective.h).
  virtual cuda::Health& health() = 0;
  // Of the compute stream, for use within its launch(). Graphs may outlive the device, but not be
  // launched then.
  virtual cuda::GraphMaker& graphs() = 0;
};

struct CudaDeviceOptions {
  int index = 0;  // among the GPUs that the process sees
};

// kUnavailable: no GPU here, no driver, or none with that index; the message says which. Events,
// gates and memory may outlive the device, but not be used then.
Result<std::unique_ptr<CudaDevice>> make_cuda_device(const CudaDeviceOptions& options);

}  // namespace spillway::kernels
