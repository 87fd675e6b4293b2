// Which GPUs this process may use, and what memory they have. Plain functions, for start-up and for
// tools: gpu_memory() makes a context, which takes memory of the GPU and tenths of a second.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace spillway::kernels {

struct GpuInfo {
  int index = 0;  // as CudaDeviceOptions has it
  std::string name;
  int major = 0, minor = 0;  // compute capability
  size_t memory_bytes = 0;

  // The oldest that there are kernels for (kernels/cuda/CMakeLists.txt).
  bool has_kernels() const { return major >= 8; }
  std::string description() const {  // "NVIDIA H200, sm_90, 139 GiB"
    return name + ", sm_" + std::to_string(major) + std::to_string(minor) + ", " +
           std::to_string(memory_bytes >> 30) + " GiB";
  }
};

struct GpuMemory {
  size_t free_bytes = 0;  // what no process has, nor the driver
  size_t all_bytes = 0;
};

// kUnavailable: there is no GPU, no driver, or one that is too old; the message says which. Not
// empty.
Result<std::vector<GpuInfo>> find_gpus();

// REQUIRES: find_gpus() has told of it.
Result<GpuMemory> gpu_memory(int index);

}  // namespace spillway::kernels
