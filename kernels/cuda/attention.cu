// Paged attention, for a GPU.
#include "kernels/cuda/attention.cuh"

#include "kernels/cuda/gpu_launcher.cuh"

namespace spillway::kernels::cuda {

int attention(CUstream_st* stream, const AttentionArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { attention(launch, args); });
}
int tiled_attention(CUstream_st* stream, const TiledAttentionArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { tiled_attention(launch, args); });
}

}  // namespace spillway::kernels::cuda
