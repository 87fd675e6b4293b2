// A bias added to each row.
//
// Sketch, H200: 64 rows of 4,096 move 2 MB, 0.4 us: a launch's latency.
#pragma once

#include "kernels/cuda/operators.h"
#include "kernels/cuda/platform.cuh"

namespace spillway::kernels::cuda {

SPILLWAY_KERNEL void add_bias_kernel(AddBiasArgs args) {
  const uint32_t i = block_index().x * block_threads() + thread_index();
  if (i >= args.n) return;
  args.x[block_index().y * args.stride + i] += args.bias[i];
}

template <class Launcher>
auto add_bias(Launcher& launch, const AddBiasArgs& args) {
  constexpr uint32_t kThreads = 256;
  const LaunchShape shape{.grid = {(args.n + kThreads - 1) / kThreads, args.rows, 1},
                          .threads = kThreads};
  return launch(add_bias_kernel, shape, args);
}

}  // namespace spillway::kernels::cuda
