// Operators of kernels/cuda/ on a stream of the simulated runtime (simulated_cuda.h): each of their
// kernels is an operation of that stream, in order with its copies, events and waits, and runs on
// the emulator when the stream comes to it. Link spillway_cuda_emulated for them.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "kernels/cuda/launch_shape.h"
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

}  // namespace spillway::kernels::cuda
