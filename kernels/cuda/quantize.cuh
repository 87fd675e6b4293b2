// Rows of activations rounded to int8 in blocks of 32, once for all products that read them.
//
// Sketch, H200: 64 rows of 4,096 read 1 MB and write 0.3 MB: 0.3 us, so the launch's latency.
#pragma once

#include "kernels/activation_rounding.h"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/platform.cuh"

namespace spillway::kernels::cuda {

SPILLWAY_DEVICE int32_t sum_of_half(int32_t value) {  // over 16 lanes
  for (uint32_t bits = 8; bits > 0; bits /= 2) value += shuffle_xor(value, bits);
  return value;
}

// A warp a block of 32.
SPILLWAY_KERNEL void quantize_kernel(QuantizeArgs args) {
  const uint32_t lane = thread_index() % 32;
  const uint32_t block = (block_index().x * block_threads() + thread_index()) / 32;
  const uint32_t blocks = args.to.inputs / 32;
  if (block >= blocks) return;  // a whole warp
  const size_t row = block_index().y;
  const float x = args.x[row * args.x_stride + 32 * size_t{block} + lane];
  uint32_t largest = bits_of(x) & 0x7fffffffu;  // ordered as magnitudes are, NaN above all
  for (uint32_t bits = 16; bits > 0; bits /= 2) {
    const uint32_t other = shuffle_xor(largest, bits);
    largest = other > largest ? other : largest;
  }
  const bool finite = largest < 0x7f800000u;
  const float magnitude = float_of(largest);
  const bool counts = finite && magnitude >= kActivationZeroBelow;
  float scale = counts ? magnitude / 127.0f : 0.0f;
  if (!finite) scale = float_of(0x7fc00000u);
  const int32_t value = counts ? to_nearest_int(x * (127.0f / magnitude)) : 0;
  const size_t at = row * blocks + block;
  args.to.values[32 * at + lane] = static_cast<int8_t>(value);
  const int32_t half = sum_of_half(value);
  const int32_t sum = half + shuffle_xor(half, 16);
  if (lane % 16 == 0) {
    args.to.half_scaled_sums[2 * at + lane / 16] = scale * static_cast<float>(half);
  }
  if (lane == 0) {
    args.to.scales[at] = scale;
    args.to.scaled_sums[at] = scale * static_cast<float>(sum);
  }
}

template <class Launcher>
auto quantize(Launcher& launch, const QuantizeArgs& args) {
  constexpr uint32_t kThreads = 128;
  const uint32_t blocks = args.to.inputs / 32;
  const LaunchShape shape{.grid = {(blocks + kThreads / 32 - 1) / (kThreads / 32), args.to.rows, 1},
                          .threads = kThreads};
  return launch(quantize_kernel, shape, args);
}

}  // namespace spillway::kernels::cuda
