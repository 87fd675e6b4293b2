// Paged attention, on the emulator.
#include "kernels/cuda/attention.cuh"
#include "tests/kernels/cuda/emulated_stream.h"

namespace spillway::kernels::cuda {

int attention(CUstream_st* stream, const AttentionArgs& args) {
  return emulate_on(stream, [&](auto& launch) { attention(launch, args); });
}
int tiled_attention(CUstream_st* stream, const TiledAttentionArgs& args) {
  return emulate_on(stream, [&](auto& launch) { tiled_attention(launch, args); });
}

}  // namespace spillway::kernels::cuda
