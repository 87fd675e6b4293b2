// Sixteen f32 lanes in two AVX2 registers. See lanes_avx512.h, which has the same names.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define SPILLWAY_AVX2 __attribute__((target("avx2,fma,f16c,tune=haswell")))
#define SPILLWAY_LANES SPILLWAY_AVX2 __attribute__((always_inline)) inline

namespace spillway::kernels::avx2 {

struct Lanes {
  __m256 low;
  __m256 high;
};

// Eight lanes of all ones below n (any int), then zeros.
SPILLWAY_LANES __m256i below(int n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}

SPILLWAY_LANES Lanes all(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
SPILLWAY_LANES Lanes load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
SPILLWAY_LANES void store(float* to, Lanes x) {
  _mm256_storeu_ps(to, x.low);
  _mm256_storeu_ps(to + 8, x.high);
}
SPILLWAY_LANES Lanes load_some(const float* from, size_t n, float rest) {
  const __m256i low = below(static_cast<int>(n));
  const __m256i high = below(static_cast<int>(n) - 8);
  const __m256 other = _mm256_set1_ps(rest);
  return {_mm256_blendv_ps(other, _mm256_maskload_ps(from, low), _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(other, _mm256_maskload_ps(from + 8, high), _mm256_castsi256_ps(high))};
}
SPILLWAY_LANES void store_some(float* to, Lanes x, size_t n) {
  _mm256_maskstore_ps(to, below(static_cast<int>(n)), x.low);
  _mm256_maskstore_ps(to + 8, below(static_cast<int>(n) - 8), x.high);
}

SPILLWAY_LANES Lanes add(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
SPILLWAY_LANES Lanes sub(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
SPILLWAY_LANES Lanes mul(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
SPILLWAY_LANES Lanes div(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
SPILLWAY_LANES Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
SPILLWAY_LANES Lanes max(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
SPILLWAY_LANES Lanes min(Lanes a, Lanes b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

SPILLWAY_LANES Lanes unless_below(Lanes y, float low, Lanes value) {
  const __m256 limit = _mm256_set1_ps(low);
  return {_mm256_and_ps(_mm256_cmp_ps(y.low, limit, _CMP_NLT_UQ), value.low),
          _mm256_and_ps(_mm256_cmp_ps(y.high, limit, _CMP_NLT_UQ), value.high)};
}
SPILLWAY_LANES Lanes only_between(Lanes value, int first, int last, float rest) {
  const __m256 other = _mm256_set1_ps(rest);
  const __m256i low = _mm256_andnot_si256(below(first), below(last));
  const __m256i high = _mm256_andnot_si256(below(first - 8), below(last - 8));
  return {_mm256_blendv_ps(other, value.low, _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(other, value.high, _mm256_castsi256_ps(high))};
}
SPILLWAY_LANES __m256 times_power(__m256 value, __m256 rounded) {
  const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(rounded), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), shifted));
}
SPILLWAY_LANES Lanes times_power(Lanes value, Lanes rounded) {
  return {times_power(value.low, rounded.low), times_power(value.high, rounded.high)};
}
SPILLWAY_LANES Lanes swap_pairs(Lanes x) {
  return {_mm256_permute_ps(x.low, 0xb1), _mm256_permute_ps(x.high, 0xb1)};
}
SPILLWAY_LANES uint32_t equal_mask(Lanes a, Lanes b) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ));
  return static_cast<uint32_t>(low | high << 8);
}

SPILLWAY_LANES bool any_above(Lanes a, Lanes b) {
  const __m256 low = _mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ);
  const __m256 high = _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ);
  return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
}

SPILLWAY_LANES float fold_sum(Lanes x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
SPILLWAY_LANES float fold_max(Lanes x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

SPILLWAY_LANES __m128i load_eight(const uint16_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
SPILLWAY_LANES Lanes load_f16(const uint16_t* from) {
  return {_mm256_cvtph_ps(load_eight(from)), _mm256_cvtph_ps(load_eight(from + 8))};
}
SPILLWAY_LANES __m256 widen_bf16(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
SPILLWAY_LANES Lanes load_bf16(const uint16_t* from) {
  return {widen_bf16(load_eight(from)), widen_bf16(load_eight(from + 8))};
}
SPILLWAY_LANES void store_f16(uint16_t* to, Lanes x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x.low, kNearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm256_cvtps_ph(x.high, kNearest));
}
// The bf16 in the low half of each 32-bit lane.
SPILLWAY_LANES __m256i round_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
SPILLWAY_LANES void store_bf16(uint16_t* to, Lanes x) {
  const __m256i packed = _mm256_packus_epi32(round_bf16(x.low), round_bf16(x.high));
  const __m256i ordered = _mm256_permute4x64_epi64(packed, 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), ordered);
}

}  // namespace spillway::kernels::avx2

#undef SPILLWAY_LANES
