// Matrix products with SSE4.1: the x86-64-v2 baseline. No fused multiply-add, so its own bits.
#include <smmintrin.h>

#include "kernels/iq4_nl.h"
#include "kernels/matmul_job.h"
#include "runtime/check.h"

#define SPILLWAY_TARGET
#define SPILLWAY_INLINE [[maybe_unused]] __attribute__((always_inline)) inline

namespace spillway::kernels {
namespace baseline {
namespace {

constexpr bool kByteDots = false;
constexpr uint32_t kLanes = 4;
using Ints = __m128i;
using Floats = __m128;

SPILLWAY_INLINE Ints load_ints(const void* from) {
  return _mm_load_si128(static_cast<const __m128i*>(from));
}
SPILLWAY_INLINE void store_ints(void* to, Ints x) { _mm_store_si128(static_cast<__m128i*>(to), x); }
SPILLWAY_INLINE Ints bytes_of(int value) { return _mm_set1_epi8(static_cast<char>(value)); }
SPILLWAY_INLINE Ints int_and(Ints a, Ints b) { return _mm_and_si128(a, b); }
SPILLWAY_INLINE Ints int_or(Ints a, Ints b) { return _mm_or_si128(a, b); }
SPILLWAY_INLINE Ints int_xor(Ints a, Ints b) { return _mm_xor_si128(a, b); }
SPILLWAY_INLINE Ints add_8(Ints a, Ints b) { return _mm_add_epi8(a, b); }
SPILLWAY_INLINE Ints add_16(Ints a, Ints b) { return _mm_add_epi16(a, b); }
SPILLWAY_INLINE Ints add_32(Ints a, Ints b) { return _mm_add_epi32(a, b); }
template <int kLeft>
SPILLWAY_INLINE Ints shift_16(Ints x) {
  if constexpr (kLeft > 0) return _mm_slli_epi16(x, kLeft);
  if constexpr (kLeft < 0) return _mm_srli_epi16(x, -kLeft);
  return x;
}
// The bytes of a 16-entry table at indices 0..15.
SPILLWAY_INLINE Ints look_up(const int8_t* table, Ints index) {
  return _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)), index);
}
SPILLWAY_INLINE Ints broadcast_4(const int8_t* from) {
  int32_t word;
  __builtin_memcpy(&word, from, sizeof word);
  return _mm_set1_epi32(word);
}
SPILLWAY_INLINE Ints ints_of(int32_t value) { return _mm_set1_epi32(value); }
// Unsigned a times signed b, pairs added: saturates past 16 bits, which the callers rule out.
SPILLWAY_INLINE Ints multiply_pairs(Ints a, Ints b) { return _mm_maddubs_epi16(a, b); }
SPILLWAY_INLINE Ints add_pairs_16(Ints x) { return _mm_madd_epi16(x, _mm_set1_epi16(1)); }
SPILLWAY_INLINE Ints magnitudes(Ints x) { return _mm_abs_epi8(x); }
SPILLWAY_INLINE Ints with_sign_of(Ints x, Ints sign) { return _mm_sign_epi8(x, sign); }

SPILLWAY_INLINE Floats zeros() { return _mm_setzero_ps(); }
SPILLWAY_INLINE Floats load_floats(const float* from) { return _mm_load_ps(from); }
SPILLWAY_INLINE void store_floats(float* to, Floats x) { _mm_store_ps(to, x); }
SPILLWAY_INLINE Floats broadcast(float value) { return _mm_set1_ps(value); }
SPILLWAY_INLINE Floats to_floats(Ints x) { return _mm_cvtepi32_ps(x); }
SPILLWAY_INLINE Floats multiply(Floats a, Floats b) { return _mm_mul_ps(a, b); }
SPILLWAY_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm_add_ps(_mm_mul_ps(a, b), c);
}
SPILLWAY_INLINE Floats negative(Floats x) { return _mm_xor_ps(x, _mm_set1_ps(-0.0f)); }
SPILLWAY_INLINE Ints four_halves(const std::byte* from) {
  return _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
// As f16_to_f32() in half.h, four at a time.
SPILLWAY_INLINE Floats from_f16(const std::byte* from) {
  const Ints half = four_halves(from);
  const Ints magnitude = _mm_slli_epi32(_mm_and_si128(half, ints_of(0x7fff)), 13);
  const Ints sign = _mm_slli_epi32(_mm_and_si128(half, ints_of(0x8000)), 16);
  const Ints special =
      _mm_and_si128(_mm_cmpgt_epi32(magnitude, ints_of(0xf7fffff)), ints_of(0x7f800000));
  const Ints normal = int_or(add_32(magnitude, ints_of(0x38000000)), special);
  const Floats above = _mm_castsi128_ps(int_or(magnitude, ints_of(0x38800000)));
  const Floats small = _mm_sub_ps(above, _mm_set1_ps(0x1p-14f));  // 2^-14 + value, less 2^-14
  const Ints is_small = _mm_cmplt_epi32(magnitude, ints_of(0x800000));
  const Ints bits = _mm_blendv_epi8(normal, _mm_castps_si128(small), is_small);
  return _mm_castsi128_ps(int_or(bits, sign));
}
SPILLWAY_INLINE Floats from_bf16(const std::byte* from) {
  return _mm_castsi128_ps(_mm_slli_epi32(four_halves(from), 16));
}
SPILLWAY_INLINE __m128i four_bytes(const std::byte* from) {
  int32_t word;
  __builtin_memcpy(&word, from, sizeof word);
  return _mm_cvtsi32_si128(word);
}
SPILLWAY_INLINE Floats from_u8(const std::byte* from) {
  return _mm_cvtepi32_ps(_mm_cvtepu8_epi32(four_bytes(from)));
}
SPILLWAY_INLINE Floats from_i8(const std::byte* from) {
  return _mm_cvtepi32_ps(_mm_cvtepi8_epi32(four_bytes(from)));
}
SPILLWAY_INLINE Floats from_low_nibbles(const std::byte* from) {
  return _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_and_si128(four_bytes(from), _mm_set1_epi8(15))));
}
SPILLWAY_INLINE Floats from_high_nibbles(const std::byte* from) {
  const __m128i high = _mm_and_si128(_mm_srli_epi16(four_bytes(from), 4), _mm_set1_epi8(15));
  return _mm_cvtepi32_ps(_mm_cvtepu8_epi32(high));
}
// Signed codes x signed values as magnitude x value with the code's sign, so that pairs fit 16
// bits.
SPILLWAY_INLINE Ints dot_4(Ints sum, Ints codes, Ints values) {
  const Ints pairs = multiply_pairs(magnitudes(codes), with_sign_of(values, codes));
  return add_32(sum, add_pairs_16(pairs));
}

#include "kernels/matmul_tile.inc"

}  // namespace
}  // namespace baseline

void matmul_panels_baseline(const MatmulJob& job, uint32_t first, uint32_t end) {
  baseline::run_panels(job, first, end);
}

}  // namespace spillway::kernels
