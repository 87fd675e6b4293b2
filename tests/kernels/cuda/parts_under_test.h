// Parts of kernels as operators of their own, so that tests reach them on whatever GPU they run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sampling.h"

namespace spillway::kernels::cuda {

// Sorts in one block, in place.
struct SortArgs {
  uint64_t* keys = nullptr;   // (count)
  uint64_t* spare = nullptr;  // (count)
  uint32_t count = 0;
};
int sort(CUstream_st* stream, const SortArgs& args);

// Sums in order, until they are enough.
struct SumsArgs {
  const double* values = nullptr;  // (n)
  uint32_t n = 0;
  double enough = 0;
  double* to = nullptr;       // (n)
  double* last = nullptr;     // (1)
  uint32_t* count = nullptr;  // (1): of those in `to`
  uint32_t* first = nullptr;  // (1): of them that is enough
};
int sum_up(CUstream_st* stream, const SumsArgs& args);

// The random number of each draw.
struct UniformArgs {
  const DeviceDraw* draws = nullptr;  // (count)
  uint32_t count = 0;
  double* to = nullptr;  // (count)
};
int draw_uniform(CUstream_st* stream, const UniformArgs& args);

// The weight of each logit under a maximum of 0.
struct WeightsArgs {
  const float* logits = nullptr;  // (count)
  uint32_t count = 0;
  float* to = nullptr;  // (count)
};
int weigh(CUstream_st* stream, const WeightsArgs& args);

// What sample() left of its first row in the scratch: the sums of blocks of weights.
struct BlockSumsArgs {
  SampleArgs sample;
  double* sums = nullptr;      // (weight_blocks(n)): at the draw's temperature
  double* raw_sums = nullptr;  // the same at 1
};
int take_block_sums(CUstream_st* stream, const BlockSumsArgs& args);

}  // namespace spillway::kernels::cuda
