// y = x W^T for few rows and quantised weights, dequantised in registers; one order over the inputs
// for every number of rows, the CPU's (matmul.h): exact integer dot products inside a block of 32,
// by 8-bit tensor cores, then one FMA chain over blocks, ascending.
//
// A block of threads computes 16 outputs (a panel) for 8 rows. Eight warps take turns at the blocks
// of 32 inputs: 4 each make a chunk, and leave f32(dot) * scale in shared memory; then 128 threads,
// one an output and row, run their chains on over the chunk, while the others begin the next.
//
// Sketch, H200, one layer's 14,336 x 4,096 in Q4_0: 33 MB of weights, 6.9 us at 4.8 TB/s for 1 to 8
// rows. A warp issues about 60 instructions for 16 x 32 weights (288 bytes: 14 cycles of an SM's
// share of the bandwidth, in which it issues 56), and about 18 KB an SM are under way at 2 blocks
// of threads an SM: just memory bound. More than 8 rows read the weights again, out of L2;
// matmul.cuh says from where on matmul_many.cuh is for them.
#pragma once

#include "kernels/cuda/packed_codes.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace spillway::kernels::cuda {

inline constexpr uint32_t kMatmulRows = 8;  // of a block of threads
inline constexpr uint32_t kMatmulWarps = 8;
inline constexpr uint32_t kMatmulWarpBlocks = 4;  // of a chunk, each warp's
inline constexpr uint32_t kMatmulChunk = kMatmulWarps * kMatmulWarpBlocks;
inline constexpr uint32_t kMatmulTile = kMatmulRows * kPanelColumns;  // chains

// The integer dot products of a block of 32 inputs: per half where the format scales halves.
struct BlockDots {
  int32_t low[4] = {};
  int32_t high[4] = {};
};

template <TensorType kType>
SPILLWAY_DEVICE BlockDots block_dots(const std::byte* from, const int8_t* values) {
  constexpr PackedFormat kFormat = packed_format(kType);
  const GlobalBytes codes{from};
  const uint32_t g = thread_index() % 32 / 4;
  const uint32_t t = thread_index() % 4;
  const uint32_t a[4] = {code_bytes<kType>(codes, g, t), code_bytes<kType>(codes, g + 8, t),
                         code_bytes<kType>(codes, g, t + 4),
                         code_bytes<kType>(codes, g + 8, t + 4)};
  uint32_t b[2] = {0, 0};
  if (values != nullptr) {
    const auto* words = reinterpret_cast<const uint32_t*>(values);
    b[0] = words[t];
    b[1] = words[t + 4];
  }
  BlockDots dots;
  if constexpr (kFormat.has_halves()) {
    mma_s8_k16(dots.low, {a[0], a[1]}, b[0]);
    mma_s8_k16(dots.high, {a[2], a[3]}, b[1]);
  } else {
    mma_s8_k32(dots.low, a, b);
  }
  return dots;
}

// Leaves what block `block` adds, but for the activations' scale, for 16 outputs and 8 rows.
template <TensorType kType>
SPILLWAY_DEVICE void make_terms(const MatmulArgs& args, const std::byte* panel, uint32_t block,
                                const Shared<float>& terms) {
  constexpr PackedFormat kFormat = packed_format(kType);
  const uint32_t blocks = args.w.inputs / kBlockInputs;
  const uint32_t g = thread_index() % 32 / 4;
  const uint32_t t = thread_index() % 4;
  const uint32_t row = block_index().y * kMatmulRows + g;  // whose values this lane brings
  const int8_t* values = row < args.x.rows
                             ? args.x.values + size_t{row} * args.x.inputs + block * kBlockInputs
                             : nullptr;
  const std::byte* codes =
      panel + kFormat.scale_section_bytes(blocks) + block * kFormat.code_bytes();
  const BlockDots dots = block_dots<kType>(codes, values);
  for (uint32_t upper = 0; upper < 2; ++upper) {
    const uint32_t column = g + 8 * upper;
    const ColumnScales scales = column_scales<kType>(panel, column, block);
    for (uint32_t i = 0; i < 2; ++i) {
      float term = static_cast<float>(dots.low[2 * upper + i]) * scales.scale[0];
      if constexpr (kFormat.has_halves()) {
        term = fused(static_cast<float>(dots.high[2 * upper + i]), scales.scale[1], term);
      }
      terms[(2 * t + i) * kPanelColumns + column] = term;
    }
  }
}

// Runs the chain of one output and row on over blocks [first, end).
template <TensorType kType>
SPILLWAY_DEVICE float run_chain(const MatmulArgs& args, const std::byte* panel, uint32_t row,
                                uint32_t first, uint32_t end, const Shared<float>& terms,
                                float sum) {
  constexpr PackedFormat kFormat = packed_format(kType);
  const size_t at = size_t{row} * (args.x.inputs / kBlockInputs);
  for (uint32_t block = first; block < end; ++block) {
    const float term = terms[(block - first) * kMatmulTile + thread_index()];
    sum = fused(term, args.x.scales[at + block], sum);
    if constexpr (kFormat.is_affine()) {
      const uint32_t column = thread_index() % kPanelColumns;
      const ColumnScales scales = column_scales<kType>(panel, column, block);
      if constexpr (kFormat.has_halves()) {
        sum = fused(scales.minimum[0], args.x.half_scaled_sums[2 * (at + block)], sum);
        sum = fused(scales.minimum[1], args.x.half_scaled_sums[2 * (at + block) + 1], sum);
      } else {
        sum = fused(scales.minimum[0], args.x.scaled_sums[at + block], sum);
      }
    }
  }
  return sum;
}

template <TensorType kType>
SPILLWAY_KERNEL void matmul_few_kernel(MatmulArgs args) {
  SPILLWAY_SHARED(float, buffers, 2 * kMatmulChunk * kMatmulTile);
  const std::byte* panel = args.w.panels + block_index().x * args.w.panel_bytes;
  const uint32_t blocks = args.w.inputs / kBlockInputs;
  const uint32_t warp = thread_index() / 32;
  const uint32_t row = block_index().y * kMatmulRows + thread_index() / kPanelColumns;
  const uint32_t output = block_index().x * kPanelColumns + thread_index() % kPanelColumns;
  const bool has_chain = thread_index() < kMatmulTile && row < args.x.rows;
  float sum = 0;
  uint32_t buffer = 0;
  for (uint32_t first = 0; first < blocks; first += kMatmulChunk) {
    const Shared<float> terms = buffers.part(buffer * kMatmulChunk * kMatmulTile);
    for (uint32_t i = 0; i < kMatmulWarpBlocks; ++i) {
      const uint32_t mine = warp + i * kMatmulWarps;
      if (first + mine >= blocks) break;
      make_terms<kType>(args, panel, first + mine, terms.part(mine * kMatmulTile));
    }
    sync_threads();
    const uint32_t end = first + kMatmulChunk < blocks ? first + kMatmulChunk : blocks;
    if (has_chain) sum = run_chain<kType>(args, panel, row, first, end, terms, sum);
    buffer ^= 1;  // the next chunk does not wait for the chains of this one
  }
  if (has_chain && output < args.w.outputs) args.y[row * args.y_stride + output] = sum;
}

// Any number of rows; meant for few.
template <class Launcher>
auto matmul_few(Launcher& launch, const MatmulArgs& args) {
  const LaunchShape shape{.grid = {(args.w.outputs + kPanelColumns - 1) / kPanelColumns,
                                   (args.x.rows + kMatmulRows - 1) / kMatmulRows, 1},
                          .threads = 32 * kMatmulWarps};
  return with_quantised_type(args.w.type, [&](auto tag) {
    return launch(matmul_few_kernel<decltype(tag)::value>, shape, args);
  });
}

}  // namespace spillway::kernels::cuda
