// The one place that launches kernels on a GPU.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/launch_shape.h"

namespace spillway::kernels::cuda {

// Enqueues on one stream; after an error nothing more. For one operator, in the calling thread.
class GpuLauncher {
 public:
  explicit GpuLauncher(cudaStream_t stream) : stream_(stream) {}

  template <class... Parameters>
  void operator()(void (*kernel)(Parameters...), const LaunchShape& shape,
                  const Parameters&... arguments) {
    const Index3& grid = shape.grid;
    if (error_ != cudaSuccess || grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    if (shape.shared_bytes != 0) {
      // Static and dynamic memory of more than 48 KB must be asked for. Always for the most:
      // threads that launch one kernel side by side must not lower each other's limit.
      error_ = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kDynamicSharedBytesMax));
      if (error_ != cudaSuccess) return;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(grid.x, grid.y, grid.z);
    config.blockDim = dim3(shape.threads, 1, 1);
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream_;
    error_ = cudaLaunchKernelEx(&config, kernel, arguments...);
  }

  int error() const { return error_; }

 private:
  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

// In place of launches: loads each kernel to the calling thread's device.
class KernelLoader {
 public:
  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), const LaunchShape&, const Arguments&...) {
    cudaFuncAttributes attributes{};
    if (error_ == cudaSuccess) error_ = cudaFuncGetAttributes(&attributes, kernel);
  }

  int error() const { return error_; }

 private:
  cudaError_t error_ = cudaSuccess;
};

// A function as loading.h declares it.
template <class Every>
int load_all(const Every& every) {
  KernelLoader loader;
  every(loader);
  return loader.error();
}

// An operator as operators.h declares it.
template <class Enqueue>
int enqueue_on(CUstream_st* stream, const Enqueue& enqueue) {
  GpuLauncher launcher(stream);
  enqueue(launcher);
  return launcher.error();
}

}  // namespace spillway::kernels::cuda
