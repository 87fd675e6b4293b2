// Packed codes and scales to vectors, with AVX-512. Internal to the AVX-512 kernels.
//
// A block of 32 inputs x 16 columns expands to 8 vectors of unsigned bytes. The zero is 128 where
// the format has no minimum: the bias of an Activations block is made for it.
#pragma once

#include <immintrin.h>

#include "kernels/iq4_nl.h"
#include "kernels/packed_format.h"

#define SPILLWAY_AVX512 \
  __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define SPILLWAY_AVX512_INLINE SPILLWAY_AVX512 __attribute__((always_inline)) inline

namespace spillway::kernels::avx512 {

template <int kLeft>
SPILLWAY_AVX512_INLINE __m512i shift_bytes(__m512i bits) {  // to the left; the caller masks
  if constexpr (kLeft > 0) return _mm512_slli_epi16(bits, kLeft);
  if constexpr (kLeft < 0) return _mm512_srli_epi16(bits, -kLeft);
  return bits;
}

// ORs the plane that holds kBits bits of vector v into w, at bit kShift.
template <int kBits, int kShift, int v>
SPILLWAY_AVX512_INLINE __m512i with_plane(__m512i w, const std::byte* plane) {
  constexpr int kVectors = kBits;
  const __m512i bits = _mm512_loadu_si512(plane + v % kVectors * kVectorBytes);
  const __m512i placed = shift_bytes<kShift - v / kVectors * kBits>(bits);
  const __m512i mask = _mm512_set1_epi8(((1 << kBits) - 1) << kShift);
  return _mm512_ternarylogic_epi32(w, placed, mask, 0xf8);  // w | (placed & mask)
}

// Vector v of a block of codes.
template <PackedFormat kFormat, int v>
SPILLWAY_AVX512_INLINE __m512i code_vector(const std::byte* codes) {
  if constexpr (kFormat.code_bits == 8) {
    return _mm512_loadu_si512(codes + v * kVectorBytes);
  } else {
    constexpr int kLow = kFormat.code_bits >= 4 ? 4 : 2;
    constexpr int kHigh = kFormat.code_bits - kLow;
    const __m512i low = _mm512_loadu_si512(codes + v % kLow * kVectorBytes);
    __m512i w =
        _mm512_and_si512(shift_bytes<-(v / kLow * kLow)>(low), _mm512_set1_epi8((1 << kLow) - 1));
    if constexpr (kHigh != 0) w = with_plane<kHigh, kLow, v>(w, codes + kLow * kVectorBytes);
    if constexpr (kFormat.is_table) {
      const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4NlValues));
      const __m512i table = _mm512_broadcast_i32x4(_mm_xor_si128(values, _mm_set1_epi8(-128)));
      return _mm512_shuffle_epi8(table, w);
    } else if constexpr (!kFormat.is_affine()) {
      return _mm512_add_epi8(w, _mm512_set1_epi8(static_cast<char>(128 - kFormat.zero)));
    } else {
      return w;
    }
  }
}

struct BlockScales {
  __m512 scale[2];    // per half of the block where the format has halves, else [0]
  __m512 minimum[2];  // likewise, where it is affine
};

SPILLWAY_AVX512_INLINE __m512 f16_vector(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

SPILLWAY_AVX512_INLINE __m512 u8_vector(__m128i bytes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

SPILLWAY_AVX512_INLINE __m512 i8_vector(__m128i bytes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

SPILLWAY_AVX512_INLINE __m128i bytes_16(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

SPILLWAY_AVX512_INLINE __m512 negative(__m512 value) {
  return _mm512_xor_ps(value, _mm512_set1_ps(-0.0f));
}

template <PackedFormat kFormat>
SPILLWAY_AVX512_INLINE BlockScales block_scales(const std::byte* panel, size_t block) {
  const std::byte* from = panel + kFormat.scale_offset(block);
  const std::byte* head = panel + kFormat.head_offset(block);
  BlockScales out;
  if constexpr (kFormat.scales == ScaleKind::kPlain) {
    out.scale[0] = f16_vector(from);
  } else if constexpr (kFormat.scales == ScaleKind::kAffine) {
    out.scale[0] = f16_vector(from);
    out.minimum[0] = f16_vector(from + 32);
  } else if constexpr (kFormat.scales == ScaleKind::kKAffine) {
    out.scale[0] = _mm512_mul_ps(f16_vector(head), u8_vector(bytes_16(from)));
    out.minimum[0] = _mm512_mul_ps(negative(f16_vector(head + 32)), u8_vector(bytes_16(from + 16)));
  } else if constexpr (kFormat.scales == ScaleKind::kKHalves) {
    const __m512 scale = f16_vector(head);
    out.scale[0] = _mm512_mul_ps(scale, i8_vector(bytes_16(from)));
    out.scale[1] = _mm512_mul_ps(scale, i8_vector(bytes_16(from + 16)));
  } else {
    const __m512 scale = f16_vector(head);
    const __m512 minimum = negative(f16_vector(head + 32));
    const __m128i low = _mm_set1_epi8(15);
    for (int half = 0; half < 2; ++half) {
      const __m128i both = bytes_16(from + 16 * half);
      const __m128i high = _mm_and_si128(_mm_srli_epi16(both, 4), low);
      out.scale[half] = _mm512_mul_ps(scale, u8_vector(_mm_and_si128(both, low)));
      out.minimum[half] = _mm512_mul_ps(minimum, u8_vector(high));
    }
  }
  return out;
}

}  // namespace spillway::kernels::avx512
