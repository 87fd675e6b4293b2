// Rotation of the heads of q or k, with the QK-norm that may come before it: one pass in place.
//
// Sketch, H200: 64 rows of 40 heads of 128 move 2.6 MB, 0.6 us; decode is the launch's latency.
// Prefill of 512 rows: 21 MB, 4.4 us.
#pragma once

#include "kernels/cuda/math.cuh"
#include "kernels/cuda/operators.h"

namespace spillway::kernels::cuda {

// One head of one row a block.
SPILLWAY_KERNEL void rope_kernel(RopeArgs args) {
  SPILLWAY_SHARED(float, scratch, kSumLanes);
  const Shared<float> head = dynamic_shared<float>(0, args.head_dim);
  const size_t row = block_index().y;
  float* x = args.x + row * args.x_stride + size_t{block_index().x} * args.head_dim;
  float lane = 0;
  for (uint32_t i = thread_index(); i < args.head_dim; i += kSumLanes) {
    lane = fused(x[i], x[i], lane);
  }
  float factor = 1;
  if (args.weight != nullptr) {
    const float mean = sum_of_lanes(lane, scratch) / static_cast<float>(args.head_dim);
    factor = 1.0f / square_root(mean + args.eps);
  }
  for (uint32_t i = thread_index(); i < args.head_dim; i += kSumLanes) {
    head[i] = args.weight != nullptr ? (x[i] * factor) * args.weight[i] : x[i];
  }
  sync_threads();
  const float* cosines = args.angles + row * 2 * args.dims;
  const float* sines = cosines + args.dims;
  for (uint32_t i = thread_index(); i < args.head_dim; i += kSumLanes) {
    float value = head[i];
    if (i < args.dims) {
      const uint32_t half = args.dims / 2;
      const uint32_t across = i < half ? i + half : i - half;
      const float other = head[args.in_halves ? across : i ^ 1u];
      value = fused(value, cosines[i], other * sines[i]);
    }
    x[i] = value;
  }
}

template <class Launcher>
auto rope(Launcher& launch, const RopeArgs& args) {
  const LaunchShape shape{.grid = {args.heads, args.rows, 1},
                          .threads = kSumLanes,
                          .shared_bytes = args.head_dim * sizeof(float)};
  return launch(rope_kernel, shape, args);
}

}  // namespace spillway::kernels::cuda
