// Operators of kernels/cuda/ on a stream of the simulated runtime (simulated_cuda.h): each of their
// kernels is an operation of that stream, in order with its copies, events and waits, and runs on
// the emulator when the stream comes to it. Link spillway_cuda_emulated for them.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "kernels/cuda/launch_shape.h"
#include "runtime/check.h"
#include "tests/emulator/simulated_cuda.h"

namespace spillway::kernels::cuda {

// As GpuLauncher (gpu_launcher.cuh): enqueues, and after an error nothing more. For one operator.
class StreamLauncher {
 public:
  explicit StreamLauncher(cudaStream_t stream) : stream_(stream) {}

  // The arguments are those of now, whatever becomes of what they came from.
  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), const LaunchShape& shape,
                  const Arguments&... arguments) {
    const Index3& grid = shape.grid;
    if (error_ != cudaSuccess || grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    const auto run = [kernel, bound = std::tuple<std::decay_t<Parameters>...>(arguments...)] {
      std::apply(kernel, bound);
    };
    error_ = emulator::SimulatedCuda::current().launch(stream_, shape, run);
  }

  int error() const { return error_; }

 private:
  const cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

// An operator as operators.h declares it.
template <class Enqueue>
int emulate_on(CUstream_st* stream, const Enqueue& enqueue) {
  StreamLauncher launcher(stream);
  enqueue(launcher);
  return launcher.error();
}

// A runtime of one stream that runs all at once, for models and engines over a device of host
// memory. One at a time, in one thread at a time.
class StreamAtOnce {
 public:
  StreamAtOnce() : cuda_({.at_once = true}) {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
  }
  CUstream_st* get() const { return stream_; }
  uint64_t launches() const { return cuda_.calls("launch"); }  // those refused among them
  // The launch that comes after so many others is refused.
  void fail_in(uint64_t launches) {
    cuda_.fail_call("launch", cudaErrorLaunchFailure, static_cast<uint32_t>(launches));
  }

 private:
  emulator::SimulatedCuda cuda_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace spillway::kernels::cuda
