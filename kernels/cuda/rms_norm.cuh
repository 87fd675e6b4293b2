// RMSNorm of rows, with the residual sum that comes before it; of a head's row it is QK-norm.
//
// Sketch, H200: a row of 4,096 reads 3 x 16 KB and writes 2 x 16 KB; 64 rows move 5 MB, 1.1 us at
// 4.8 TB/s, so a launch of decode (1 to 64 rows) is its latency: a chain of 64 FMAs a thread behind
// loads that do not wait for each other, about 3 us. Prefill of 512 rows: 42 MB, 9 us.
#pragma once

#include "kernels/cuda/math.cuh"
#include "kernels/cuda/operators.h"

namespace spillway::kernels::cuda {

SPILLWAY_KERNEL void rms_norm_kernel(RmsNormArgs args) {
  SPILLWAY_SHARED(float, scratch, kSumLanes);
  const size_t row = block_index().x;
  float* x = args.x + row * args.x_stride;
  float* y = args.y + row * args.y_stride;
  float lane = 0;
  for (uint32_t i = thread_index(); i < args.n; i += kSumLanes) {
    float value = x[i];
    if (args.added != nullptr) {
      value += args.added[row * args.added_stride + i];
      x[i] = value;
    }
    lane = fused(value, value, lane);
  }
  const float mean = sum_of_lanes(lane, scratch) / static_cast<float>(args.n);
  const float factor = 1.0f / square_root(mean + args.eps);
  for (uint32_t i = thread_index(); i < args.n; i += kSumLanes) {
    y[i] = (x[i] * factor) * args.weight[i];
  }
}

template <class Launcher>
auto rms_norm(Launcher& launch, const RmsNormArgs& args) {
  return launch(rms_norm_kernel, LaunchShape{.grid = {args.rows, 1, 1}, .threads = kSumLanes},
                args);
}

}  // namespace spillway::kernels::cuda
