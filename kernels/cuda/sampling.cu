// Drawing tokens, for a GPU.
#include "kernels/cuda/gpu_launcher.cuh"
#include "kernels/cuda/sample.cuh"

namespace spillway::kernels::cuda {

int sample(CUstream_st* stream, const SampleArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { sample(launch, args); });
}

}  // namespace spillway::kernels::cuda
