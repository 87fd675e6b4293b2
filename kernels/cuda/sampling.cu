// Drawing tokens, for a GPU.
#include "kernels/cuda/every_sampling_kernel.cuh"
#include "kernels/cuda/gpu_launcher.cuh"
#include "kernels/cuda/loading.h"

namespace spillway::kernels::cuda {

int sample(CUstream_st* stream, const SampleArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { sample(launch, args); });
}

int load_sampling_kernels() {
  return load_all([](auto& launch) { every_sampling_kernel(launch); });
}

}  // namespace spillway::kernels::cuda
