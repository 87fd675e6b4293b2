// Quantised matrix products with AVX-512 VNNI.
//
// Many rows: a chunk of a pair of panels (32 columns x 512 inputs) is expanded to bytes in L1 once,
// then tiles of up to 6 rows run over it: 12 chains of vpdpbusd, each activation broadcast used for
// both panels. Per block and row of 32 x 32: 16 dot products, and 4 to 10 float steps by format.
// Few rows: one panel at a time straight from the packed codes, which is bound by memory.
#include <immintrin.h>

#include "kernels/codes_avx512.h"
#include "kernels/matmul_job.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace avx512 {
namespace {

constexpr uint32_t kTileRows = 6;
constexpr uint32_t kFewRowsMax = 8;  // up to here, no expansion
// How far ahead of a walk over packed codes memory is fetched. Measured on a Sapphire Rapids: one
// row at 25 GB/s with it and 17 without; a loop that only reads reaches the same two figures.
constexpr size_t kPrefetchBytes = 8192;
constexpr uint32_t kChunkBlocks = 20;  // 20 to 30 KiB for a pair of panels

// Where codes are small and their scale is one per block, dot products start from the bits of 1.5 *
// 2^23: then the sum's bits, read as a float, are that plus the dot product, and one fma takes the
// constant off again while it scales: fma(bits, scale, -constant * scale) rounds f32(dot) * scale
// once, as the product of two floats would, because the constant's product is exact (an f16, or an
// f16 times six bits, times 3). One operation in place of a conversion and a product.
// REQUIRES: |dot| < 2^22.
template <PackedFormat kFormat>
constexpr bool kDotsAsFloats = kFormat.is_affine() && !kFormat.has_halves();
constexpr float kDotZero = 0x1.8p23f;

// One block of a panel, expanded.
template <PackedFormat kFormat>
struct alignas(64) ExpandedBlock {
  static constexpr int kHalves = kFormat.has_halves() ? 2 : 1;
  uint8_t codes[8][kVectorBytes];
  float scale[kHalves][kPanelColumns];
  float minimum[kFormat.is_affine() ? kHalves : 0][kPanelColumns];
};

template <PackedFormat kFormat>
SPILLWAY_AVX512 void expand(const MatmulJob& job, uint32_t panel, uint32_t first, uint32_t end,
                            ExpandedBlock<kFormat>* to) {
  const std::byte* from = job.w->panel(panel);
  const std::byte* codes = from + kFormat.scale_section_bytes(job.w->blocks());
  for (uint32_t block = first; block < end; ++block, ++to) {
    const std::byte* at = codes + block * kFormat.code_bytes();
    for (size_t line = 0; line < kFormat.code_bytes() + kFormat.scale_bytes(); line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes + line), _MM_HINT_T0);
    }
    _mm512_store_si512(to->codes[0], (code_vector<kFormat, 0>(at)));
    _mm512_store_si512(to->codes[1], (code_vector<kFormat, 1>(at)));
    _mm512_store_si512(to->codes[2], (code_vector<kFormat, 2>(at)));
    _mm512_store_si512(to->codes[3], (code_vector<kFormat, 3>(at)));
    _mm512_store_si512(to->codes[4], (code_vector<kFormat, 4>(at)));
    _mm512_store_si512(to->codes[5], (code_vector<kFormat, 5>(at)));
    _mm512_store_si512(to->codes[6], (code_vector<kFormat, 6>(at)));
    _mm512_store_si512(to->codes[7], (code_vector<kFormat, 7>(at)));
    const BlockScales scales = block_scales<kFormat>(from, block);
    for (int half = 0; half < ExpandedBlock<kFormat>::kHalves; ++half) {
      _mm512_store_ps(to->scale[half], scales.scale[half]);
      if constexpr (kFormat.is_affine()) _mm512_store_ps(to->minimum[half], scales.minimum[half]);
    }
  }
}

SPILLWAY_AVX512_INLINE __m512i broadcast_4(const int8_t* from) {
  return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(from));
}

// The float step of one row and one block of one panel, after the exact dot products.
template <PackedFormat kFormat>
SPILLWAY_AVX512_INLINE __m512 add_block(__m512 sum, const __m512i* dots, const BlockScales& w,
                                        const Activations& x, size_t at) {
  const __m512 x_scale = _mm512_set1_ps(x.scales[at]);
  __m512 low;
  if constexpr (kDotsAsFloats<kFormat>) {
    const __m512 zero = _mm512_mul_ps(w.scale[0], _mm512_set1_ps(-kDotZero));  // once per block
    low = _mm512_fmadd_ps(_mm512_castsi512_ps(dots[0]), w.scale[0], zero);
  } else {
    low = _mm512_mul_ps(_mm512_cvtepi32_ps(dots[0]), w.scale[0]);
  }
  if constexpr (!kFormat.has_halves()) {
    sum = _mm512_fmadd_ps(low, x_scale, sum);
    if constexpr (kFormat.is_affine()) {
      sum = _mm512_fmadd_ps(w.minimum[0], _mm512_set1_ps(x.scaled_sums[at]), sum);
    }
  } else {
    const __m512 both = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[1]), w.scale[1], low);
    sum = _mm512_fmadd_ps(both, x_scale, sum);
    if constexpr (kFormat.is_affine()) {
      const float* sums = x.half_scaled_sums + 2 * at;
      sum = _mm512_fmadd_ps(w.minimum[0], _mm512_set1_ps(sums[0]), sum);
      sum = _mm512_fmadd_ps(w.minimum[1], _mm512_set1_ps(sums[1]), sum);
    }
  }
  return sum;
}

// What the dot products of a block start from: the part of the codes' zero.
template <PackedFormat kFormat>
SPILLWAY_AVX512_INLINE __m512i first_dot(const Activations& x, size_t at, int half) {
  if constexpr (kDotsAsFloats<kFormat>) return _mm512_castps_si512(_mm512_set1_ps(kDotZero));
  if constexpr (kFormat.is_affine()) return _mm512_setzero_si512();
  if constexpr (kFormat.has_halves()) return _mm512_set1_epi32(x.half_biases[2 * at + half]);
  return _mm512_set1_epi32(x.biases[at]);
}

template <PackedFormat kFormat, int kPanels>
struct Tile {
  const ExpandedBlock<kFormat>* w;  // (panel, kChunkBlocks)
  uint32_t first_block;
  uint32_t blocks;
  float* y;  // of the tile's first row, panel 0
  __mmask16 columns[kPanels];
};

template <PackedFormat kFormat, int kPanels, int kRows>
SPILLWAY_AVX512 void run_tile(const MatmulJob& job, const Tile<kFormat, kPanels>& tile,
                              uint32_t row) {
  constexpr int kHalves = ExpandedBlock<kFormat>::kHalves;
  const Activations& x = job.x;
  __m512 sums[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      const float* from = tile.y + r * job.y_stride + p * kPanelColumns;
      __builtin_prefetch(from, 1);
      sums[r][p] = tile.first_block == 0 ? _mm512_setzero_ps()
                                         : _mm512_maskz_loadu_ps(tile.columns[p], from);
    }
  }
  const size_t row_blocks = x.blocks();
  for (uint32_t b = 0; b < tile.blocks; ++b) {
    const size_t at = size_t{row} * row_blocks + tile.first_block + b;
    const ExpandedBlock<kFormat>* w = tile.w + b;
    __m512i dots[kHalves][kRows][kPanels];
#pragma GCC unroll 2
    for (int half = 0; half < kHalves; ++half) {
      for (int r = 0; r < kRows; ++r) {
        for (int p = 0; p < kPanels; ++p) {
          dots[half][r][p] = first_dot<kFormat>(x, at + r * row_blocks, half);
        }
      }
#pragma GCC unroll 8
      for (int v = half * 4; v < (half + 1) * 8 / kHalves; ++v) {
        __m512i codes[kPanels];
        for (int p = 0; p < kPanels; ++p) {
          codes[p] = _mm512_load_si512(w[p * kChunkBlocks].codes[v]);
        }
        for (int r = 0; r < kRows; ++r) {
          const __m512i values =
              broadcast_4(x.values + (at + r * row_blocks) * kBlockInputs + 4 * v);
          for (int p = 0; p < kPanels; ++p) {
            dots[half][r][p] = _mm512_dpbusd_epi32(dots[half][r][p], codes[p], values);
          }
        }
      }
    }
    for (int p = 0; p < kPanels; ++p) {
      BlockScales scales;
      for (int half = 0; half < kHalves; ++half) {
        scales.scale[half] = _mm512_load_ps(w[p * kChunkBlocks].scale[half]);
        if constexpr (kFormat.is_affine()) {
          scales.minimum[half] = _mm512_load_ps(w[p * kChunkBlocks].minimum[half]);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        const __m512i both[2] = {dots[0][r][p], dots[kHalves - 1][r][p]};
        sums[r][p] = add_block<kFormat>(sums[r][p], both, scales, x, at + r * row_blocks);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      float* to = tile.y + r * job.y_stride + p * kPanelColumns;
      _mm512_mask_storeu_ps(to, tile.columns[p], sums[r][p]);
    }
  }
}

template <PackedFormat kFormat, int kPanels>
SPILLWAY_AVX512 void run_tiles(const MatmulJob& job, Tile<kFormat, kPanels> tile, float* y) {
  using RunTile = void (*)(const MatmulJob&, const Tile<kFormat, kPanels>&, uint32_t row);
  static constexpr RunTile kRunTile[kTileRows] = {
      run_tile<kFormat, kPanels, 1>, run_tile<kFormat, kPanels, 2>, run_tile<kFormat, kPanels, 3>,
      run_tile<kFormat, kPanels, 4>, run_tile<kFormat, kPanels, 5>, run_tile<kFormat, kPanels, 6>};
  const EvenParts tiles(job.x.rows, kTileRows);
  for (uint32_t i = 0; i < tiles.count; ++i) {
    const uint32_t row = tiles.first(i);
    tile.y = y + row * job.y_stride;
    kRunTile[tiles.first(i + 1) - row - 1](job, tile, row);
  }
}

// kPanels neighbouring panels for many rows.
template <PackedFormat kFormat, int kPanels>
SPILLWAY_AVX512 void many_rows(const MatmulJob& job, uint32_t panel) {
  ExpandedBlock<kFormat> expanded[kPanels * kChunkBlocks];
  Tile<kFormat, kPanels> tile;
  tile.w = expanded;
  for (int p = 0; p < kPanels; ++p) {
    tile.columns[p] = static_cast<__mmask16>((1u << job.columns_of(panel + p)) - 1);
  }
  const EvenParts chunks(job.w->blocks(), kChunkBlocks);
  for (uint32_t i = 0; i < chunks.count; ++i) {
    const uint32_t first = chunks.first(i);
    const uint32_t end = chunks.first(i + 1);
    for (int p = 0; p < kPanels; ++p) {
      expand<kFormat>(job, panel + p, first, end, expanded + p * kChunkBlocks);
    }
    tile.first_block = first;
    tile.blocks = end - first;
    run_tiles<kFormat, kPanels>(job, tile, job.y + size_t{panel} * kPanelColumns);
  }
}

// One vector of codes against kRows rows of activations.
template <PackedFormat kFormat, int v, int kRows>
SPILLWAY_AVX512_INLINE void dot_vector(const std::byte* codes, const int8_t* values,
                                       size_t row_bytes, __m512i* dots) {
  const __m512i w = code_vector<kFormat, v>(codes);
  for (int r = 0; r < kRows; ++r) {
    dots[r] = _mm512_dpbusd_epi32(dots[r], w, broadcast_4(values + r * row_bytes + 4 * v));
  }
}

// One panel for kRows rows from row 0, straight from the packed codes.
template <PackedFormat kFormat, int kRows>
SPILLWAY_AVX512 void few_rows(const MatmulJob& job, uint32_t panel) {
  constexpr int kHalves = kFormat.has_halves() ? 2 : 1;
  // Few rows need a second chain to hide the latency of the dot products.
  constexpr bool kTwoChains = kHalves == 2 || kRows <= 2;
  const Activations& x = job.x;
  const size_t row_blocks = x.blocks();
  const std::byte* from = job.w->panel(panel);
  const std::byte* codes = from + kFormat.scale_section_bytes(row_blocks);
  __m512 sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = _mm512_setzero_ps();
  for (size_t b = 0; b < row_blocks; ++b, codes += kFormat.code_bytes()) {
    __m512i low[kRows];   // vectors 0-3, or all
    __m512i high[kRows];  // vectors 4-7: their own half, or a second chain
    for (int r = 0; r < kRows; ++r) {
      low[r] = first_dot<kFormat>(x, b + r * row_blocks, 0);
      high[r] =
          kHalves == 2 ? first_dot<kFormat>(x, b + r * row_blocks, 1) : _mm512_setzero_si512();
    }
    for (size_t line = 0; line < kFormat.code_bytes() + kFormat.scale_bytes(); line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(codes + kPrefetchBytes + line), _MM_HINT_T0);
    }
    const int8_t* values = x.values + b * kBlockInputs;
    dot_vector<kFormat, 0, kRows>(codes, values, x.inputs, low);
    dot_vector<kFormat, 1, kRows>(codes, values, x.inputs, low);
    dot_vector<kFormat, 2, kRows>(codes, values, x.inputs, low);
    dot_vector<kFormat, 3, kRows>(codes, values, x.inputs, low);
    __m512i* second = kTwoChains ? high : low;
    dot_vector<kFormat, 4, kRows>(codes, values, x.inputs, second);
    dot_vector<kFormat, 5, kRows>(codes, values, x.inputs, second);
    dot_vector<kFormat, 6, kRows>(codes, values, x.inputs, second);
    dot_vector<kFormat, 7, kRows>(codes, values, x.inputs, second);
    const BlockScales scales = block_scales<kFormat>(from, b);
    for (int r = 0; r < kRows; ++r) {
      constexpr bool kSum = kHalves == 1 && kTwoChains;
      const __m512i both[2] = {kSum ? _mm512_add_epi32(low[r], high[r]) : low[r], high[r]};
      sums[r] = add_block<kFormat>(sums[r], both, scales, x, b + r * row_blocks);
    }
  }
  const auto columns = static_cast<__mmask16>((1u << job.columns_of(panel)) - 1);
  for (int r = 0; r < kRows; ++r) {
    float* to = job.y + r * job.y_stride + size_t{panel} * kPanelColumns;
    _mm512_mask_storeu_ps(to, columns, sums[r]);
  }
}

template <PackedFormat kFormat>
void run_format(const MatmulJob& job, uint32_t first, uint32_t end) {
  static constexpr void (*kFewRows[kFewRowsMax])(const MatmulJob&, uint32_t) = {
      few_rows<kFormat, 1>, few_rows<kFormat, 2>, few_rows<kFormat, 3>, few_rows<kFormat, 4>,
      few_rows<kFormat, 5>, few_rows<kFormat, 6>, few_rows<kFormat, 7>, few_rows<kFormat, 8>};
  if (job.x.rows <= kFewRowsMax) {
    for (uint32_t panel = first; panel < end; ++panel) kFewRows[job.x.rows - 1](job, panel);
    return;
  }
  uint32_t panel = first;
  for (; panel + 2 <= end; panel += 2) many_rows<kFormat, 2>(job, panel);
  if (panel < end) many_rows<kFormat, 1>(job, panel);
}

// What matmul_floats.inc needs: one vector is a whole panel.
constexpr uint32_t kLanes = 16;
constexpr uint32_t kPanelVectors = 1;
using Floats = __m512;
SPILLWAY_AVX512_INLINE Floats zeros() { return _mm512_setzero_ps(); }
SPILLWAY_AVX512_INLINE Floats load_floats(const float* from) { return _mm512_loadu_ps(from); }
SPILLWAY_AVX512_INLINE void store_floats(float* to, Floats x) { _mm512_storeu_ps(to, x); }
SPILLWAY_AVX512_INLINE Floats broadcast(float value) { return _mm512_set1_ps(value); }
SPILLWAY_AVX512_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
SPILLWAY_AVX512_INLINE Floats from_f16(const std::byte* from) { return f16_vector(from); }
SPILLWAY_AVX512_INLINE Floats from_bf16(const std::byte* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

#define SPILLWAY_TARGET SPILLWAY_AVX512
#define SPILLWAY_INLINE SPILLWAY_AVX512_INLINE
#include "kernels/matmul_floats.inc"

}  // namespace
}  // namespace avx512

void matmul_panels_avx512(const MatmulJob& job, uint32_t first, uint32_t end) {
  using avx512::run_floats;
  using avx512::run_format;
  switch (job.w->type()) {
    case TensorType::kF32:
      return run_floats<TensorType::kF32>(job, first, end);
    case TensorType::kF16:
      return run_floats<TensorType::kF16>(job, first, end);
    case TensorType::kBf16:
      return run_floats<TensorType::kBf16>(job, first, end);
    case TensorType::kQ4_0:
      return run_format<packed_format(TensorType::kQ4_0)>(job, first, end);
    case TensorType::kQ4_1:
      return run_format<packed_format(TensorType::kQ4_1)>(job, first, end);
    case TensorType::kQ5_0:
      return run_format<packed_format(TensorType::kQ5_0)>(job, first, end);
    case TensorType::kQ5_1:
      return run_format<packed_format(TensorType::kQ5_1)>(job, first, end);
    case TensorType::kQ8_0:
      return run_format<packed_format(TensorType::kQ8_0)>(job, first, end);
    case TensorType::kQ2_K:
      return run_format<packed_format(TensorType::kQ2_K)>(job, first, end);
    case TensorType::kQ3_K:
      return run_format<packed_format(TensorType::kQ3_K)>(job, first, end);
    case TensorType::kQ4_K:
      return run_format<packed_format(TensorType::kQ4_K)>(job, first, end);
    case TensorType::kQ5_K:
      return run_format<packed_format(TensorType::kQ5_K)>(job, first, end);
    case TensorType::kQ6_K:
      return run_format<packed_format(TensorType::kQ6_K)>(job, first, end);
    case TensorType::kIq4Nl:
      return run_format<packed_format(TensorType::kIq4Nl)>(job, first, end);
  }
  check_failed("a tensor type that Spillway computes with", __FILE__, __LINE__);
}

}  // namespace spillway::kernels
