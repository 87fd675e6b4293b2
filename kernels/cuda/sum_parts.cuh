// Sums over ranks, in their order, of parts that lie in this GPU's memory.
//
// Sketch, H200: 512 rows of 4,096 of two ranks read 16.8 MB and write 8.4 MB, 6 us; a decode row is
// a launch's latency.
#pragma once

#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/rank_operators.h"

namespace spillway::kernels::cuda {

SPILLWAY_KERNEL void sum_parts_kernel(SumPartsArgs args) {
  const uint32_t i = block_index().x * block_threads() + thread_index();
  if (i >= args.n) return;
  const size_t at = block_index().y * args.stride + i;
  float sum = args.parts[0][at];
  SPILLWAY_UNROLL
  for (uint32_t p = 1; p < kRanksMax; ++p) {  // so that no pointer is looked up by a variable
    if (p < args.count) sum += args.parts[p][at];
  }
  args.y[block_index().y * args.y_stride + i] = sum;
}

template <class Launcher>
auto sum_parts(Launcher& launch, const SumPartsArgs& args) {
  constexpr uint32_t kThreads = 256;
  const LaunchShape shape{.grid = {(args.n + kThreads - 1) / kThreads, args.rows, 1},
                          .threads = kThreads};
  return launch(sum_parts_kernel, shape, args);
}

}  // namespace spillway::kernels::cuda
