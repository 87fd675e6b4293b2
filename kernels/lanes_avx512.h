// Sixteen f32 lanes in one AVX-512 register. lanes_avx2.h and lanes_baseline.h have the same names
// with the same meaning; kernel bodies (*.inc) are written once over them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define SPILLWAY_AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")))
#define SPILLWAY_LANES SPILLWAY_AVX512 __attribute__((always_inline)) inline

namespace spillway::kernels::avx512 {

using Lanes = __m512;

SPILLWAY_LANES __mmask16 first_lanes(size_t n) { return static_cast<__mmask16>((1u << n) - 1); }

SPILLWAY_LANES Lanes all(float value) { return _mm512_set1_ps(value); }
SPILLWAY_LANES Lanes load(const float* from) { return _mm512_loadu_ps(from); }
SPILLWAY_LANES void store(float* to, Lanes x) { _mm512_storeu_ps(to, x); }
// The first n (0 .. 15) elements; the other lanes are `rest`.
SPILLWAY_LANES Lanes load_some(const float* from, size_t n, float rest) {
  return _mm512_mask_loadu_ps(all(rest), first_lanes(n), from);
}
SPILLWAY_LANES void store_some(float* to, Lanes x, size_t n) {
  _mm512_mask_storeu_ps(to, first_lanes(n), x);
}

SPILLWAY_LANES Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
SPILLWAY_LANES Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
SPILLWAY_LANES Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
SPILLWAY_LANES Lanes div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
SPILLWAY_LANES Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
// b where either is NaN.
SPILLWAY_LANES Lanes max(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
SPILLWAY_LANES Lanes min(Lanes a, Lanes b) { return _mm512_min_ps(a, b); }

// `value` where y is not below `low` (NaN is not), else 0.
SPILLWAY_LANES Lanes unless_below(Lanes y, float low, Lanes value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, all(low), _CMP_NLT_UQ), value);
}
// `value` in lanes first .. last - 1, else `rest`.
SPILLWAY_LANES Lanes only_between(Lanes value, int first, int last, float rest) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 from = _mm512_cmp_epi32_mask(lane, _mm512_set1_epi32(first), _MM_CMPINT_NLT);
  const __mmask16 to = _mm512_cmp_epi32_mask(lane, _mm512_set1_epi32(last), _MM_CMPINT_LT);
  return _mm512_mask_mov_ps(all(rest), static_cast<__mmask16>(from & to), value);
}
// value * 2^n, n standing in the low bits of `rounded` (exp2_polynomial.h).
SPILLWAY_LANES Lanes times_power(Lanes value, Lanes rounded) {
  const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(rounded), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(value), shifted));
}
// Lanes 2i and 2i + 1 change places.
SPILLWAY_LANES Lanes swap_pairs(Lanes x) { return _mm512_permute_ps(x, 0xb1); }
// Bit l is set where the lanes l are equal.
SPILLWAY_LANES uint32_t equal_mask(Lanes a, Lanes b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

// Whether any lane of a is greater than b's.
SPILLWAY_LANES bool any_above(Lanes a, Lanes b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
}

// l + (l + 8), then 4, 2, 1.
SPILLWAY_LANES float fold_sum(Lanes x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
SPILLWAY_LANES float fold_max(Lanes x) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

SPILLWAY_LANES Lanes load_f16(const uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
SPILLWAY_LANES Lanes load_bf16(const uint16_t* from) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
SPILLWAY_LANES void store_f16(uint16_t* to, Lanes x) {
  const __m256i half = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
}
SPILLWAY_LANES void store_bf16(uint16_t* to, Lanes x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
}

}  // namespace spillway::kernels::avx512

#undef SPILLWAY_LANES
