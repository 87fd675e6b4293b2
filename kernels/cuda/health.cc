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
  mark_ended(error_text(call, error));
  wait_until_idle();
  return false;
}

void Health::mark_ended(const std::string& why) {
  if (failure_) return;
  failure_ =
      Error{ErrorCode::kUnavailable, "GPU " + std::to_string(device_) + " has failed: " + why};
  if (open_gates_) open_gates_();
  for (const auto& companion : companions_) {
    if (const auto living = companion.lock()) living->on_device_end();
  }
}

// What was enqueued before may still run, and write where its owners would put something else. It
// is this device that is waited for, whichever is the thread's own.
void Health::wait_until_idle() {
  cudaSetDevice(device_);
  lost_.store(cudaDeviceSynchronize() != cudaSuccess, std::memory_order_release);
}

void Health::doubt() {
  for (const auto& companion : companions_) {
    if (const auto living = companion.lock()) living->on_doubt();
  }
}

bool Health::enter() { return !ended() && ok(cudaSetDevice(device_), "cudaSetDevice"); }

}  // namespace spillway::kernels::cuda
