// What ranks compute of rows that others sent them (nccl_collective.h). Plain types, and what
// operators.h says of all operators holds here too.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace spillway::kernels::cuda {

inline constexpr uint32_t kRanksMax = 8;

// y = parts[0] + parts[1] + ..., one f32 addition after the other. Of one part: a copy.
// Twin: the sum of in_process_collective.cc.
struct SumPartsArgs {
  const float* parts[kRanksMax] = {};  // (count), each (row, n), rows stride apart; one may be y
  float* y = nullptr;                  // (row, n), rows y_stride floats apart
  size_t stride = 0;
  size_t y_stride = 0;
  uint32_t count = 0;  // at least 1
  uint32_t rows = 0;   // at most 65,535
  uint32_t n = 0;
};

int sum_parts(CUstream_st* stream, const SumPartsArgs& args);

}  // namespace spillway::kernels::cuda
