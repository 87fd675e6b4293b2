// What comes after the last product: the soft cap of logits, and greedy choice.
//
// Sketch, H200: a row of 128k logits is 0.5 MB; 64 rows read 34 MB, 7 us. The choice gives each row
// one block of 1,024 threads, 64 SMs of 132 with about 32 KB under way each: about 12 us.
#pragma once

#include "kernels/cuda/math.cuh"
#include "kernels/cuda/operators.h"

namespace spillway::kernels::cuda {

SPILLWAY_KERNEL void soft_cap_kernel(SoftCapArgs args) {
  const uint32_t i = block_index().x * block_threads() + thread_index();
  if (i >= args.n) return;
  float& x = args.x[block_index().y * args.stride + i];
  const float power = exponential(x * (2.0f / args.cap));
  x = fused(-2.0f * args.cap, 1.0f / (power + 1.0f), args.cap);
}

template <class Launcher>
auto soft_cap(Launcher& launch, const SoftCapArgs& args) {
  constexpr uint32_t kThreads = 256;
  const LaunchShape shape{.grid = {(args.n + kThreads - 1) / kThreads, args.rows, 1},
                          .threads = kThreads};
  return launch(soft_cap_kernel, shape, args);
}

// The greatest value seen and where it first was.
struct Greatest {
  float value = -__builtin_huge_valf();
  uint32_t index = 0xffffffffu;  // none
};

SPILLWAY_DEVICE Greatest greater_of(const Greatest& a, const Greatest& b) {
  const bool second = b.value > a.value || (b.value == a.value && b.index < a.index);
  return second ? b : a;
}

SPILLWAY_DEVICE Greatest greatest_of_warp(Greatest mine) {
  for (uint32_t bits = 16; bits > 0; bits /= 2) {
    const Greatest other{shuffle_xor(mine.value, bits), shuffle_xor(mine.index, bits)};
    mine = greater_of(mine, other);
  }
  return mine;
}

inline constexpr uint32_t kArgmaxThreads = 1024;

SPILLWAY_KERNEL void SPILLWAY_THREADS(kArgmaxThreads) argmax_kernel(ArgmaxArgs args) {
  SPILLWAY_SHARED(float, values, 32);
  SPILLWAY_SHARED(uint32_t, indices, 32);
  const float* x = args.x + block_index().x * args.stride;
  Greatest mine;
  for (uint32_t i = thread_index(); i < args.n; i += kArgmaxThreads) {
    mine = greater_of(mine, {x[i], i});  // NaN is greater than nothing
  }
  mine = greatest_of_warp(mine);
  if (thread_index() % 32 == 0) {
    values[thread_index() / 32] = mine.value;
    indices[thread_index() / 32] = mine.index;
  }
  sync_threads();
  if (thread_index() >= 32) return;
  mine = greatest_of_warp({values[thread_index()], indices[thread_index()]});
  if (thread_index() == 0) args.to[block_index().x] = mine.index == 0xffffffffu ? 0 : mine.index;
}

template <class Launcher>
auto argmax(Launcher& launch, const ArgmaxArgs& args) {
  return launch(argmax_kernel, LaunchShape{.grid = {args.rows, 1, 1}, .threads = kArgmaxThreads},
                args);
}

}  // namespace spillway::kernels::cuda
