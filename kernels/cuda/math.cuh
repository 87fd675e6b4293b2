// The exponentials and the sum tree of kernels/ops.h on a GPU: the same bits as the CPU's levels
// with FMA (ops_reference.h is the plain form).
#pragma once

#include "kernels/cuda/platform.cuh"
#include "kernels/exp2_polynomial.h"

namespace spillway::kernels::cuda {

SPILLWAY_DEVICE float exp2_polynomial(float f) {
  constexpr float c0 = kExp2Coefficients[0], c1 = kExp2Coefficients[1], c2 = kExp2Coefficients[2];
  constexpr float c3 = kExp2Coefficients[3], c4 = kExp2Coefficients[4], c5 = kExp2Coefficients[5];
  constexpr float c6 = kExp2Coefficients[6];
  const float high = fused(fused(fused(c6, f, c5), f, c4), f, c3);
  return fused(fused(fused(high, f, c2), f, c1), f, c0);
}

// NaN stays NaN: a GPU's is 0x7fffffff, to whose bits no power may be added.
SPILLWAY_DEVICE float times_power(float value, float rounded) {
  if (value != value) return value;
  return float_of(bits_of(value) + (bits_of(rounded) << 23));
}

// 2^y for y < 128; exactly 0 below -126.
SPILLWAY_DEVICE float power_of_2(float y) {
  if (y < kExp2Low) return 0;
  const float rounded = y + kRoundMagic;
  return times_power(exp2_polynomial(y - (rounded - kRoundMagic)), rounded);
}

// e^x, saturated at exp(88); exactly 0 below -87.
SPILLWAY_DEVICE float exponential(float x) {
  if (x < kExpLow) return 0;
  x = kExpHigh < x ? kExpHigh : x;
  const float rounded = fused(x, kLog2E, kRoundMagic);
  const float n = rounded - kRoundMagic;
  const float r = fused(n, -kLn2Low, fused(n, -kLn2High, x));
  return times_power(exp2_polynomial(r * kLog2E), rounded);
}

inline constexpr uint32_t kSumLanes = 64;

// The tree of ops.h over 64 lanes, one a thread: all of a block of 64 call it and get the sum.
// A barrier must stand between two calls with the same `scratch` (of 64).
SPILLWAY_DEVICE float sum_of_lanes(float lane, const Shared<float>& scratch) {
  scratch[thread_index()] = lane;
  sync_threads();
  const uint32_t l = thread_index() % 16;
  float sum = (scratch[l] + scratch[l + 16]) + (scratch[l + 32] + scratch[l + 48]);
  for (uint32_t half = 8; half > 0; half /= 2) sum += shuffle_xor(sum, half);
  return sum;
}

}  // namespace spillway::kernels::cuda
