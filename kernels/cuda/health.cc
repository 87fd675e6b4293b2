#include "kernels/cuda/health.h"

#include <string>

namespace spillway::kernels::cuda {

std::string error_text(const char* call, cudaError_t error) {
  return std::string(call) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
         ")";
}

bool Health::ok(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return true;
  if (failure_) return false;
  failure_ = Error{ErrorCode::kUnavailable,
                   "GPU " + std::to_string(device_) + " has failed: " + error_text(call, error)};
  if (open_gates_) open_gates_();
  // What was enqueued before may still run, and write where its owners would put something else.
  // It is this device that is waited for, whichever is the thread's own.
  cudaSetDevice(device_);
  lost_.store(cudaDeviceSynchronize() != cudaSuccess, std::memory_order_release);
  return false;
}

bool Health::enter() { return !ended() && ok(cudaSetDevice(device_), "cudaSetDevice"); }

}  // namespace spillway::kernels::cuda
