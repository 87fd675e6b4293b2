#include "kernels/cuda/gpus.h"

#include <cstdio>

#include "kernels/cuda/health.h"
#include "kernels/cuda/runtime_api.h"

namespace spillway::kernels {
namespace {

using cuda::error_text;

// "13.0"
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Without a driver CUDA says that the driver is too old, which sends people looking for one.
std::string why_none(cudaError_t error) {
  if (error == cudaErrorNoDevice) {
    return "the driver shows none to this process (CUDA_VISIBLE_DEVICES, or a container that was "
           "started without GPUs)";
  }
  if (error != cudaErrorInsufficientDriver) return error_text("cudaGetDeviceCount", error);
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    return "there is no NVIDIA driver here";
  }
  return "the NVIDIA driver here is for CUDA " + version_text(version) +
         ", and this program takes one for " + version_text(CUDART_VERSION);
}

}  // namespace

Result<std::vector<GpuInfo>> find_gpus() {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error != cudaSuccess) {
    cudaGetLastError();  // else CUDA tells of it again where nothing is wrong
    return Error{ErrorCode::kUnavailable, "no GPU to use: " + why_none(error)};
  }
  std::vector<GpuInfo> gpus;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp about{};
    error = cudaGetDeviceProperties(&about, index);
    if (error != cudaSuccess) {
      cudaGetLastError();
      return Error{ErrorCode::kUnavailable,
                   "no GPU to use: " + error_text("cudaGetDeviceProperties", error)};
    }
    gpus.push_back({.index = index,
                    .name = about.name,
                    .major = about.major,
                    .minor = about.minor,
                    .memory_bytes = about.totalGlobalMem});
  }
  return gpus;
}

Result<GpuMemory> gpu_memory(int index) {
  GpuMemory memory;
  const auto failed = [](const char* call, cudaError_t error) {
    cudaGetLastError();
    return Error{ErrorCode::kUnavailable, "the GPU cannot be used: " + error_text(call, error)};
  };
  if (const cudaError_t error = cudaSetDevice(index); error != cudaSuccess) {
    return failed("cudaSetDevice", error);
  }
  if (const cudaError_t error = cudaMemGetInfo(&memory.free_bytes, &memory.all_bytes);
      error != cudaSuccess) {
    return failed("cudaMemGetInfo", error);
  }
  return memory;
}

}  // namespace spillway::kernels
