// Paged attention, for a GPU.
#include "kernels/cuda/every_attention_kernel.cuh"
#include "kernels/cuda/gpu_launcher.cuh"
#include "kernels/cuda/loading.h"

namespace spillway::kernels::cuda {

int attention(CUstream_st* stream, const AttentionArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { attention(launch, args); });
}
int tiled_attention(CUstream_st* stream, const TiledAttentionArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { tiled_attention(launch, args); });
}

int load_attention_kernels() {
  return load_all([](auto& launch) { every_attention_kernel(launch); });
}

}  // namespace spillway::kernels::cuda
