// Drawing tokens, on the emulator.
#include "kernels/cuda/sample.cuh"
#include "tests/kernels/cuda/emulated_stream.h"

namespace spillway::kernels::cuda {

int sample(CUstream_st* stream, const SampleArgs& args) {
  return emulate_on(stream, [&](auto& launch) { sample(launch, args); });
}

}  // namespace spillway::kernels::cuda
