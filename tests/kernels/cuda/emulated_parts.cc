// Parts of kernels as operators, on the emulator.
#include "tests/kernels/cuda/emulated_stream.h"
#include "tests/kernels/cuda/parts_under_test.cuh"

namespace spillway::kernels::cuda {

int sort(CUstream_st* stream, const SortArgs& args) {
  return emulate_on(stream, [&](auto& launch) { sort(launch, args); });
}
int sum_up(CUstream_st* stream, const SumsArgs& args) {
  return emulate_on(stream, [&](auto& launch) { sum_up(launch, args); });
}
int draw_uniform(CUstream_st* stream, const UniformArgs& args) {
  return emulate_on(stream, [&](auto& launch) { draw_uniform(launch, args); });
}
int weigh(CUstream_st* stream, const WeightsArgs& args) {
  return emulate_on(stream, [&](auto& launch) { weigh(launch, args); });
}
int take_block_sums(CUstream_st* stream, const BlockSumsArgs& args) {
  return emulate_on(stream, [&](auto& launch) { take_block_sums(launch, args); });
}

}  // namespace spillway::kernels::cuda
