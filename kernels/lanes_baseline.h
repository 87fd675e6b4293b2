// Sixteen f32 lanes in four SSE registers (x86-64-v2: no FMA, no F16C, so fma() rounds twice). See
// lanes_avx512.h, which has the same names.
#pragma once

#include <smmintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/half.h"

#define SPILLWAY_LANES __attribute__((always_inline)) inline

namespace spillway::kernels::baseline {

struct Lanes {
  __m128 part[4];
};

SPILLWAY_LANES Lanes all(float value) {
  const __m128 part = _mm_set1_ps(value);
  return {{part, part, part, part}};
}
SPILLWAY_LANES Lanes load(const float* from) {
  return {{_mm_loadu_ps(from), _mm_loadu_ps(from + 4), _mm_loadu_ps(from + 8),
           _mm_loadu_ps(from + 12)}};
}
SPILLWAY_LANES void store(float* to, Lanes x) {
  for (int i = 0; i < 4; ++i) _mm_storeu_ps(to + 4 * i, x.part[i]);
}
SPILLWAY_LANES Lanes load_some(const float* from, size_t n, float rest) {
  float copy[16];
  for (float& value : copy) value = rest;
  std::memcpy(copy, from, n * sizeof(float));
  return load(copy);
}
SPILLWAY_LANES void store_some(float* to, Lanes x, size_t n) {
  float copy[16];
  store(copy, x);
  std::memcpy(to, copy, n * sizeof(float));
}

#define SPILLWAY_BINARY(name, intrinsic)                                       \
  SPILLWAY_LANES Lanes name(Lanes a, Lanes b) {                                \
    Lanes out;                                                                 \
    for (int i = 0; i < 4; ++i) out.part[i] = intrinsic(a.part[i], b.part[i]); \
    return out;                                                                \
  }
SPILLWAY_BINARY(add, _mm_add_ps)
SPILLWAY_BINARY(sub, _mm_sub_ps)
SPILLWAY_BINARY(mul, _mm_mul_ps)
SPILLWAY_BINARY(div, _mm_div_ps)
SPILLWAY_BINARY(max, _mm_max_ps)
SPILLWAY_BINARY(min, _mm_min_ps)
#undef SPILLWAY_BINARY

SPILLWAY_LANES Lanes fma(Lanes a, Lanes b, Lanes c) { return add(mul(a, b), c); }

SPILLWAY_LANES Lanes unless_below(Lanes y, float low, Lanes value) {
  Lanes out;
  for (int i = 0; i < 4; ++i) {
    out.part[i] = _mm_and_ps(_mm_cmpnlt_ps(y.part[i], _mm_set1_ps(low)), value.part[i]);
  }
  return out;
}
SPILLWAY_LANES Lanes only_between(Lanes value, int first, int last, float rest) {
  Lanes out;
  for (int i = 0; i < 4; ++i) {
    const __m128i lane = _mm_add_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32(4 * i));
    const __m128i from = _mm_cmpgt_epi32(_mm_set1_epi32(first), lane);
    const __m128i to = _mm_cmpgt_epi32(_mm_set1_epi32(last), lane);
    const __m128 mask = _mm_castsi128_ps(_mm_andnot_si128(from, to));
    out.part[i] = _mm_blendv_ps(_mm_set1_ps(rest), value.part[i], mask);
  }
  return out;
}
SPILLWAY_LANES Lanes times_power(Lanes value, Lanes rounded) {
  Lanes out;
  for (int i = 0; i < 4; ++i) {
    const __m128i shifted = _mm_slli_epi32(_mm_castps_si128(rounded.part[i]), 23);
    out.part[i] = _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(value.part[i]), shifted));
  }
  return out;
}
SPILLWAY_LANES Lanes swap_pairs(Lanes x) {
  Lanes out;
  for (int i = 0; i < 4; ++i) out.part[i] = _mm_shuffle_ps(x.part[i], x.part[i], 0xb1);
  return out;
}
SPILLWAY_LANES uint32_t equal_mask(Lanes a, Lanes b) {
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const int four = _mm_movemask_ps(_mm_cmpeq_ps(a.part[i], b.part[i]));
    out |= static_cast<uint32_t>(four) << (4 * i);
  }
  return out;
}

SPILLWAY_LANES bool any_above(Lanes a, Lanes b) {
  int above = 0;
  for (int i = 0; i < 4; ++i) above |= _mm_movemask_ps(_mm_cmpgt_ps(a.part[i], b.part[i]));
  return above != 0;
}

SPILLWAY_LANES float fold_sum(Lanes x) {
  const __m128 low = _mm_add_ps(x.part[0], x.part[2]);
  const __m128 four = _mm_add_ps(low, _mm_add_ps(x.part[1], x.part[3]));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
SPILLWAY_LANES float fold_max(Lanes x) {
  const __m128 low = _mm_max_ps(x.part[0], x.part[2]);
  const __m128 four = _mm_max_ps(low, _mm_max_ps(x.part[1], x.part[3]));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Software conversions, half.h.
SPILLWAY_LANES Lanes load_f16(const uint16_t* from) {
  float wide[16];
  for (int i = 0; i < 16; ++i) wide[i] = f16_to_f32(from[i]);
  return load(wide);
}
SPILLWAY_LANES Lanes load_bf16(const uint16_t* from) {
  float wide[16];
  for (int i = 0; i < 16; ++i) wide[i] = bf16_to_f32(from[i]);
  return load(wide);
}
SPILLWAY_LANES void store_f16(uint16_t* to, Lanes x) {
  float wide[16];
  store(wide, x);
  for (int i = 0; i < 16; ++i) to[i] = f32_to_f16(wide[i]);
}
SPILLWAY_LANES void store_bf16(uint16_t* to, Lanes x) {
  float wide[16];
  store(wide, x);
  for (int i = 0; i < 16; ++i) to[i] = f32_to_bf16(wide[i]);
}

}  // namespace spillway::kernels::baseline

#undef SPILLWAY_LANES
