#include "kernels/activations.h"

#include <immintrin.h>

#include <bit>
#include <cstdlib>
#include <utility>

#include "kernels/packed_format.h"
#include "kernels/share.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

// Per block of 32 inputs: scale, bias, scaled sum, and two of each of the halves' forms.
constexpr size_t kBlockSideBytes = 4 + 4 + 4 + 8 + 8;

// How a block rounds: values are x * inverse.
struct BlockScale {
  float inverse = 0.0f;
  float scale = 0.0f;
};

// From the bits of the largest magnitude, whose integer order is that of magnitudes, NaN above all.
inline BlockScale scale_of(uint32_t largest_bits) {
  if (largest_bits >= 0x7f800000) return {0.0f, std::bit_cast<float>(0x7fc00000u)};
  const float largest = std::bit_cast<float>(largest_bits);
  if (largest < kActivationZeroBelow) return {};
  return {127.0f / largest, largest / 127.0f};
}

// Everything that follows from a block's scale and the sums of its halves.
inline void store_sides(const Activations& to, size_t block, float scale, int32_t low,
                        int32_t high) {
  to.scales[block] = scale;
  to.biases[block] = -128 * (low + high);
  to.scaled_sums[block] = scale * static_cast<float>(low + high);
  to.half_biases[2 * block] = -128 * low;
  to.half_biases[2 * block + 1] = -128 * high;
  to.half_scaled_sums[2 * block] = scale * static_cast<float>(low);
  to.half_scaled_sums[2 * block + 1] = scale * static_cast<float>(high);
}

// The largest of four unsigned-as-signed magnitudes.
inline uint32_t largest_lane(__m128i magnitudes) {
  magnitudes = _mm_max_epi32(magnitudes, _mm_shuffle_epi32(magnitudes, 0x4e));
  magnitudes = _mm_max_epi32(magnitudes, _mm_shuffle_epi32(magnitudes, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(magnitudes));
}

// x * inverse to nearest even; 0 where inverse is, even for a NaN.
inline __m128i round_4(const float* x, __m128 inverse, __m128 nonzero) {
  return _mm_cvtps_epi32(_mm_and_ps(_mm_mul_ps(_mm_loadu_ps(x), inverse), nonzero));
}

// SSE4.1: 18 ns a block of 32, 4 ns with AVX2.
void quantize_block_baseline(const float* x, const Activations& to, size_t block) {
  const __m128i no_sign = _mm_set1_epi32(0x7fffffff);
  __m128i largest = _mm_setzero_si128();
  for (uint32_t i = 0; i < kBlockInputs; i += 4) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    largest = _mm_max_epi32(largest, _mm_and_si128(bits, no_sign));
  }
  const BlockScale scale = scale_of(largest_lane(largest));
  const __m128 inverse = _mm_set1_ps(scale.inverse);
  const __m128 nonzero = _mm_cmpneq_ps(inverse, _mm_setzero_ps());
  __m128i sums[2];
  for (uint32_t half = 0; half < 2; ++half) {
    const float* from = x + 16 * half;
    const __m128i a = round_4(from, inverse, nonzero);
    const __m128i b = round_4(from + 4, inverse, nonzero);
    const __m128i c = round_4(from + 8, inverse, nonzero);
    const __m128i d = round_4(from + 12, inverse, nonzero);
    const __m128i bytes = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to.values + block * kBlockInputs + 16 * half),
                     bytes);
    sums[half] = _mm_add_epi32(_mm_add_epi32(a, b), _mm_add_epi32(c, d));
  }
  const __m128i pairs = _mm_hadd_epi32(sums[0], sums[1]);
  const __m128i halves = _mm_hadd_epi32(pairs, pairs);
  store_sides(to, block, scale.scale, _mm_extract_epi32(halves, 0), _mm_extract_epi32(halves, 1));
}

#define SPILLWAY_AVX2 __attribute__((target("avx2")))

SPILLWAY_AVX2 inline __m256i round_8(const float* x, __m256 inverse, __m256 nonzero) {
  return _mm256_cvtps_epi32(_mm256_and_ps(_mm256_mul_ps(_mm256_loadu_ps(x), inverse), nonzero));
}

SPILLWAY_AVX2 inline __m256i magnitudes_8(const float* x) {
  const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x));
  return _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
}

SPILLWAY_AVX2 void quantize_block_avx2(const float* x, const Activations& to, size_t block) {
  const __m256i largest =
      _mm256_max_epi32(_mm256_max_epi32(magnitudes_8(x), magnitudes_8(x + 8)),
                       _mm256_max_epi32(magnitudes_8(x + 16), magnitudes_8(x + 24)));
  const BlockScale scale = scale_of(largest_lane(
      _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1))));
  const __m256 inverse = _mm256_set1_ps(scale.inverse);
  const __m256 nonzero = _mm256_cmp_ps(inverse, _mm256_setzero_ps(), _CMP_NEQ_OQ);
  const __m256i a = round_8(x, inverse, nonzero);
  const __m256i b = round_8(x + 8, inverse, nonzero);
  const __m256i c = round_8(x + 16, inverse, nonzero);
  const __m256i d = round_8(x + 24, inverse, nonzero);
  // Packing works in each 128-bit half, which leaves groups of four values interleaved.
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.values + block * kBlockInputs),
                      _mm256_permutevar8x32_epi32(packed, order));
  const __m256i pairs = _mm256_hadd_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
  const __m128i both =
      _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  const __m128i halves = _mm_hadd_epi32(both, both);
  store_sides(to, block, scale.scale, _mm_extract_epi32(halves, 0), _mm_extract_epi32(halves, 1));
}

#undef SPILLWAY_AVX2

}  // namespace

ActivationBuffer::ActivationBuffer(CpuLevel level, size_t values_max)
    : level_(level), values_max_((values_max + kBlockInputs - 1) / kBlockInputs * kBlockInputs) {
  const size_t blocks = values_max_ / kBlockInputs;
  memory_.reset(static_cast<std::byte*>(
      std::aligned_alloc(kVectorBytes, align_to_vector(values_max_ + blocks * kBlockSideBytes))));
  CHECK(memory_ != nullptr);
}

void ActivationBuffer::Free::operator()(std::byte* memory) const { std::free(memory); }

Activations ActivationBuffer::view(const float* x, size_t x_stride, uint32_t rows,
                                   uint32_t inputs) const {
  CHECK(x_stride >= inputs);
  Activations out{.level = level_, .rows = rows, .inputs = inputs, .x = x, .x_stride = x_stride};
  if (inputs % kBlockInputs != 0) return out;
  const size_t values = size_t{rows} * inputs;
  CHECK(values <= values_max_);
  const size_t blocks = values / kBlockInputs;
  std::byte* at = memory_.get();
  const auto take = [&](size_t bytes) { return std::exchange(at, at + bytes); };
  out.values = reinterpret_cast<int8_t*>(take(values));
  out.scales = reinterpret_cast<float*>(take(4 * blocks));
  out.biases = reinterpret_cast<int32_t*>(take(4 * blocks));
  out.scaled_sums = reinterpret_cast<float*>(take(4 * blocks));
  out.half_biases = reinterpret_cast<int32_t*>(take(8 * blocks));
  out.half_scaled_sums = reinterpret_cast<float*>(take(8 * blocks));
  return out;
}

void quantize_rows(const Activations& to, uint32_t first, uint32_t end) {
  CHECK(to.inputs % kBlockInputs == 0);
  CHECK(end <= to.rows);
  const auto run = to.level == CpuLevel::kBaseline ? quantize_block_baseline : quantize_block_avx2;
  for (uint32_t row = first; row < end; ++row) {
    const float* x = to.x + row * to.x_stride;
    for (uint32_t block = 0; block < to.blocks(); ++block) {
      run(x + block * kBlockInputs, to, size_t{row} * to.blocks() + block);
    }
  }
}

void quantize(Team& team, const Activations& to) {
  const Share share = share_of(team, to.rows);
  quantize_rows(to, share.first, share.end);
}

}  // namespace spillway::kernels
