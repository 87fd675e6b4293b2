// The operators on what ranks sent each other, on the emulator.
#include "kernels/cuda/sum_parts.cuh"
#include "tests/kernels/cuda/emulated_stream.h"

namespace spillway::kernels::cuda {

int sum_parts(CUstream_st* stream, const SumPartsArgs& args) {
  return emulate_on(stream, [&](auto& launch) { sum_parts(launch, args); });
}

}  // namespace spillway::kernels::cuda
