// Whether a CUDA device works. Every call of the runtime on its behalf is told here how it went;
// the first that went wrong ends the device.
//
// Thread: the engine's, but for lost(), which memory asks where its last owner frees it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/runtime_api.h"
#include "runtime/result.h"

namespace spillway::kernels::cuda {

// Something that runs on this device and on others at once.
class Companion {
 public:
  virtual ~Companion() = default;
  // The device has failed, its gates are open, and it is about to be waited for: what runs there
  // must wait for no other device any more.
  virtual void on_device_end() = 0;
  // Somebody waits in vain: whether what runs still comes to an end. May end the device.
  virtual void on_doubt() = 0;
};

class Health {
 public:
  explicit Health(int device) : device_(device) {}

  // Called once, when the device fails: what its streams wait for must let them pass, so that they
  // come to an end.
  void on_end(std::function<void()> open_gates) { open_gates_ = std::move(open_gates); }

  // True: all is well. An error ends the device: it waits until nothing runs any more, which is
  // milliseconds, or nothing where the error has ended all that ran. `call` names what was refused.
  bool ok(cudaError_t error, const char* call);
  bool ok(CUresult error, const char* call) { return ok(static_cast<cudaError_t>(error), call); }

  // The same for what no call of CUDA's tells, in two steps, so that of several devices that wait
  // for each other none is waited for until all may pass: mark_ended(), and wait_until_idle().
  void mark_ended(const std::string& why);
  void wait_until_idle();

  // Told for as long as it lives.
  void accompany(std::weak_ptr<Companion> companion) {
    companions_.push_back(std::move(companion));
  }
  void doubt();

  // Makes the device the calling thread's own, as calls without a stream need. False: it has ended.
  bool enter();

  bool ended() const { return failure_.has_value(); }
  // Ended by an error that CUDA keeps: its memory went with it, and handles name nothing any more.
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  const Error* failure() const { return failure_ ? &*failure_ : nullptr; }
  int device() const { return device_; }

 private:
  const int device_;
  std::function<void()> open_gates_;
  std::vector<std::weak_ptr<Companion>> companions_;
  std::optional<Error> failure_;
  std::atomic<bool> lost_{false};
};

// "cudaMalloc: out of memory (cudaErrorMemoryAllocation)"
std::string error_text(const char* call, cudaError_t error);

}  // namespace spillway::kernels::cuda
