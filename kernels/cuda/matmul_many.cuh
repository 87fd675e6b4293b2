// y = x W^T for many rows and quantised weights, on 8-bit tensor cores: the order of matmul_few.cuh
// and of the CPU (matmul.h), so the same bits. A product's integers are exact in any order; each
// block of 32 inputs ends in its FMAs, and one thread has an output's chain over all blocks.
//
// A block of threads computes a tile of outputs x rows. A step is one block of 32 inputs: packed
// weights with their scales, and the rows' bytes with theirs, come by asynchronous copies, two
// steps ahead, and are unpacked by the warps that multiply them. Dot products start at a bias whose
// bits are a float's, so that subtracting it is all that turns one into a float.
//
// Sketch, H200 (132 SMs, 1.75 GHz, 1,979 int8 TOP/s): of each output, row and block (32 products) a
// subtraction, a multiplication and an FMA run at 128 an SM and cycle: 1,365 products a cycle where
// dense int8 wgmma has 4,096, so at most 630 TOP/s, and 380 where halves have scales of their own.
// A warp's step of the wide tile is 144 of those, 12 mma and about 75 to unpack and load: 62% of
// it, 390 TOP/s. 4,096 x 4,096 by 2,048 rows are 69 GOP, 180 us. Bytes: a step of 128 x 96
// brings 3.5 KB of rows and 2.3 KB of Q4_0 (4.4 of Q8_0) out of L2 for 0.8 MOP: 2.9 TB/s of
// its 5.5. The narrow tile, for a grid that would not fill the SMs, brings 2.9 KB for 0.13 MOP: 128
// blocks of it are bound by the latency of a step, about 250 cycles: 4,096 inputs in 20 us.
#pragma once

#include "kernels/cuda/packed_codes.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace spillway::kernels::cuda {

// A tile's shape: a warp has kPanels panels of 16 outputs and kTiles times 8 rows.
template <uint32_t kPanels, uint32_t kTiles, uint32_t kAcross, uint32_t kDown>
struct ManyRowsTile {
  static_assert(kTiles % 2 == 0, "rows are loaded 16 at a time");
  static constexpr uint32_t kWarpPanels = kPanels;
  static constexpr uint32_t kWarpTiles = kTiles;
  static constexpr uint32_t kWarpsAcross = kAcross;  // side by side over the outputs
  static constexpr uint32_t kThreads = 32 * kAcross * kDown;
  static constexpr uint32_t kBlockPanels = kPanels * kAcross;
  static constexpr uint32_t kOutputs = kBlockPanels * kPanelColumns;
  static constexpr uint32_t kRows = 8 * kTiles * kDown;
};
// 128 outputs and 96 rows; fewer where halves have scales of their own: what two blocks an SM have
// registers for without spilling, for sm_80, 90 and 100 (check_objects.py).
constexpr uint32_t wide_tiles(TensorType type) {
  if (type == TensorType::kQ6_K) return 6;
  return packed_format(type).has_halves() ? 8 : 12;
}
template <TensorType kType>
using WideTile = ManyRowsTile<1, wide_tiles(kType), 8, 1>;
// 32 outputs, 64 rows.
template <TensorType>
using NarrowTile = ManyRowsTile<1, 4, 2, 2>;

// What a step brings, in bytes: rows, the rows' floats, and a slot for each panel.
template <TensorType kType, class Tile>
struct ManyRowsStep {
  static constexpr PackedFormat kFormat = packed_format(kType);
  static constexpr uint32_t kAhead = 2;
  static constexpr uint32_t kStages = kAhead + 1;  // so that a step needs one barrier
  // A row's floats: its scale, and what minima multiply.
  static constexpr uint32_t kSides = !kFormat.is_affine() ? 1 : (kFormat.has_halves() ? 3 : 2);
  static constexpr uint32_t kCodes = kFormat.code_bytes();
  static constexpr uint32_t kScales = kFormat.scale_bytes();
  static constexpr uint32_t kSlot = kCodes + kScales + kFormat.head_bytes();
  static constexpr uint32_t kSidesAt = Tile::kRows * kBlockInputs;
  static constexpr uint32_t kSlotsAt = kSidesAt + Tile::kRows * kSides * 4;
  static constexpr uint32_t kBytes = kSlotsAt + Tile::kBlockPanels * kSlot;
};

// Where units of 16 bytes lie, such that lanes that read at once meet no bank twice.
SPILLWAY_DEVICE uint32_t row_unit(uint32_t row, uint32_t half) {
  return 2 * row + (half ^ (row / 4 & 1));
}
SPILLWAY_DEVICE uint32_t code_unit(uint32_t unit) { return unit ^ (unit >> 2 & 2); }

// A block's codes, and its scales and head, in shared memory. Offsets are bytes of the slot.
struct SharedCodes {
  Shared<uint16_t> slot;
  SPILLWAY_DEVICE uint32_t word(size_t at) const {
    const uint32_t unit = code_unit(static_cast<uint32_t>(at) / 16);
    return slot.template load<uint32_t>((16 * unit + at % 16) / 2);
  }
};
struct SharedScales {
  Shared<uint16_t> slot;
  size_t first;
  SPILLWAY_DEVICE uint16_t half(size_t at) const { return slot[(first + at) / 2]; }
  SPILLWAY_DEVICE uint8_t byte(size_t at) const {
    const uint16_t both = slot[(first + at) / 2];
    return static_cast<uint8_t>(both >> 8 * (at % 2));
  }
};

// Begins to copy the rows of a step; zeros for those that are not there.
template <TensorType kType, class Tile>
SPILLWAY_DEVICE void fetch_rows(const MatmulArgs& args, uint32_t block,
                                const Shared<uint16_t>& stage) {
  using Step = ManyRowsStep<kType, Tile>;
  const uint32_t first = block_index().y * Tile::kRows;
  const uint32_t blocks = args.x.inputs / kBlockInputs;
  for (uint32_t i = thread_index(); i < 2 * Tile::kRows; i += Tile::kThreads) {
    const uint32_t row = i / 2;
    const uint32_t half = i % 2;
    const bool valid = first + row < args.x.rows;
    const size_t at = size_t{first + row} * args.x.inputs + block * kBlockInputs + 16 * half;
    copy_async_16(stage, 8 * row_unit(row, half), args.x.values + (valid ? at : 0), valid);
  }
  for (uint32_t i = thread_index(); i < Step::kSides * Tile::kRows; i += Tile::kThreads) {
    const uint32_t row = i % Tile::kRows;
    const uint32_t side = i / Tile::kRows;
    const bool valid = first + row < args.x.rows;
    const size_t at = valid ? size_t{first + row} * blocks + block : 0;
    const float* from = args.x.scales + at;
    if (side != 0) {
      from = Step::kSides == 2 ? args.x.scaled_sums + at
                               : args.x.half_scaled_sums + 2 * at + (side - 1);
    }
    copy_async_4(stage, Step::kSidesAt / 2 + 2 * i, from, valid);
  }
}

// The same of the panels.
template <TensorType kType, class Tile>
SPILLWAY_DEVICE void fetch_panels(const MatmulArgs& args, uint32_t block,
                                  const Shared<uint16_t>& stage) {
  using Step = ManyRowsStep<kType, Tile>;
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr uint32_t kUnits = Step::kSlot / 16;
  const uint32_t blocks = args.x.inputs / kBlockInputs;
  const uint32_t panels = (args.w.outputs + kPanelColumns - 1) / kPanelColumns;
  for (uint32_t i = thread_index(); i < Tile::kBlockPanels * kUnits; i += Tile::kThreads) {
    const uint32_t panel = block_index().x * Tile::kBlockPanels + i / kUnits;
    const uint32_t at = i % kUnits * 16;
    size_t from = 0;
    uint32_t unit = i % kUnits;
    if (at < Step::kCodes) {
      from = kFormat.scale_section_bytes(blocks) + block * kFormat.code_bytes() + at;
      unit = code_unit(unit);
    } else if (at < Step::kCodes + Step::kScales) {
      from = kFormat.scale_offset(block) + (at - Step::kCodes);
    } else {
      from = kFormat.head_offset(block) + (at - Step::kCodes - Step::kScales);
    }
    const bool valid = panel < panels;
    copy_async_16(stage, (Step::kSlotsAt + i / kUnits * Step::kSlot + 16 * unit) / 2,
                  args.w.panels + (valid ? panel * args.w.panel_bytes + from : 0), valid);
  }
}

// A float whose last bit is worth 1 and that stays so whatever a block's dot product adds to its
// bits: that is at most 32 * 128 * 127 < 2^22.
inline constexpr int32_t kDotBias = 0x4b400000;
inline constexpr float kDotBiasValue = 12582912.0f;

SPILLWAY_DEVICE float unbiased(int32_t dot) {
  return float_of(static_cast<uint32_t>(dot)) - kDotBiasValue;
}

// The floats of rows 2t and 2t + 1 of 8: each side's.
template <uint32_t kSides>
struct RowPair {
  Float2 side[kSides];
};

// Adds a block's products of 16 outputs and 8 rows to their sums; `a` and `b` as mma takes them.
template <TensorType kType, uint32_t kSides>
SPILLWAY_DEVICE void add_products(const uint32_t (&a)[4], const uint32_t (&b)[2],
                                  const ColumnScales (&columns)[2], const RowPair<kSides>& rows,
                                  float (&sums)[4]) {
  constexpr PackedFormat kFormat = packed_format(kType);
  int32_t low[4] = {kDotBias, kDotBias, kDotBias, kDotBias};
  int32_t high[4] = {kDotBias, kDotBias, kDotBias, kDotBias};
  if constexpr (kFormat.has_halves()) {
    mma_s8_k16(low, {a[0], a[1]}, b[0]);
    mma_s8_k16(high, {a[2], a[3]}, b[1]);
  } else {
    mma_s8_k32(low, a, b);
  }
  SPILLWAY_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const ColumnScales& column = columns[i / 2];
    const auto side = [&rows, i](uint32_t s) {
      return i % 2 == 0 ? rows.side[s].x : rows.side[s].y;
    };
    float term = unbiased(low[i]) * column.scale[0];
    if constexpr (kFormat.has_halves()) term = fused(unbiased(high[i]), column.scale[1], term);
    sums[i] = fused(term, side(0), sums[i]);
    if constexpr (kFormat.is_affine()) sums[i] = fused(column.minimum[0], side(1), sums[i]);
    if constexpr (kSides == 3) sums[i] = fused(column.minimum[1], side(2), sums[i]);
  }
}

template <class Tile>
using ManyRowsSums = float[Tile::kWarpPanels][Tile::kWarpTiles][4];

// One step of a warp: its first panel and row within the tile.
template <TensorType kType, class Tile>
SPILLWAY_DEVICE void multiply_step(const Shared<uint16_t>& stage, uint32_t first_panel,
                                   uint32_t first_row, ManyRowsSums<Tile>& sums) {
  using Step = ManyRowsStep<kType, Tile>;
  const uint32_t lane = thread_index() % 32;
  const uint32_t g = lane / 4;
  const uint32_t t = lane % 4;
  uint32_t a[Tile::kWarpPanels][4];
  ColumnScales columns[Tile::kWarpPanels][2];
  SPILLWAY_UNROLL
  for (uint32_t p = 0; p < Tile::kWarpPanels; ++p) {
    const auto slot = stage.part((Step::kSlotsAt + (first_panel + p) * Step::kSlot) / 2);
    const SharedCodes codes{slot};
    const SharedScales scales{slot, Step::kCodes};
    const SharedScales head{slot, Step::kCodes + Step::kScales};
    SPILLWAY_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      a[p][i] = code_bytes<kType>(codes, g + 8 * (i % 2), t + 4 * (i / 2));
    }
    columns[p][0] = column_scales<kType>(scales, head, g);
    columns[p][1] = column_scales<kType>(scales, head, g + 8);
  }
  SPILLWAY_UNROLL
  for (uint32_t tile = 0; tile < Tile::kWarpTiles; tile += 2) {
    uint32_t b[4];  // two tiles': each lane names a row's half
    const uint32_t row = first_row + 8 * tile;
    load_matrices(b, stage, 8 * row_unit(row + lane % 8 + lane / 16 * 8, lane / 8 % 2));
    SPILLWAY_UNROLL
    for (uint32_t next = 0; next < 2; ++next) {
      RowPair<Step::kSides> rows;
      SPILLWAY_UNROLL
      for (uint32_t s = 0; s < Step::kSides; ++s) {
        const uint32_t at = s * Tile::kRows + row + 8 * next + 2 * t;
        rows.side[s] = stage.template load<Float2>(Step::kSidesAt / 2 + 2 * at);
      }
      SPILLWAY_UNROLL
      for (uint32_t p = 0; p < Tile::kWarpPanels; ++p) {
        add_products<kType>(a[p], {b[2 * next], b[2 * next + 1]}, columns[p], rows,
                            sums[p][tile + next]);
      }
    }
  }
}

template <class Tile>
SPILLWAY_DEVICE void store_products(const MatmulArgs& args, uint32_t first_output,
                                    uint32_t first_row, const ManyRowsSums<Tile>& sums) {
  const uint32_t g = thread_index() % 32 / 4;
  const uint32_t t = thread_index() % 4;
  SPILLWAY_UNROLL
  for (uint32_t p = 0; p < Tile::kWarpPanels; ++p) {
    SPILLWAY_UNROLL
    for (uint32_t tile = 0; tile < Tile::kWarpTiles; ++tile) {
      SPILLWAY_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t output = first_output + p * kPanelColumns + g + 8 * (i / 2);
        const uint32_t row = first_row + 8 * tile + 2 * t + i % 2;
        if (output < args.w.outputs && row < args.x.rows) {
          args.y[row * args.y_stride + output] = sums[p][tile][i];
        }
      }
    }
  }
}

template <TensorType kType, class Tile>
SPILLWAY_KERNEL void SPILLWAY_THREADS(Tile::kThreads) matmul_many_kernel(MatmulArgs args) {
  using Step = ManyRowsStep<kType, Tile>;
  SPILLWAY_SHARED(uint16_t, stages, Step::kStages * Step::kBytes / 2);
  const uint32_t warp = thread_index() / 32;
  const uint32_t panel = warp % Tile::kWarpsAcross * Tile::kWarpPanels;     // of the tile
  const uint32_t row = warp / Tile::kWarpsAcross * (8 * Tile::kWarpTiles);  // of the tile
  const uint32_t first_output = block_index().x * Tile::kOutputs + panel * kPanelColumns;
  const uint32_t first_row = block_index().y * Tile::kRows + row;
  const bool has_work = first_output < args.w.outputs && first_row < args.x.rows;
  const uint32_t blocks = args.x.inputs / kBlockInputs;
  const auto fetch = [&](uint32_t block) {
    if (block < blocks) {
      const auto stage = stages.part(block % Step::kStages * (Step::kBytes / 2));
      fetch_rows<kType, Tile>(args, block, stage);
      fetch_panels<kType, Tile>(args, block, stage);
    }
    commit_copies();  // an empty group past the last, so that as many are pending always
  };
  for (uint32_t block = 0; block < Step::kAhead; ++block) fetch(block);
  ManyRowsSums<Tile> sums = {};
  for (uint32_t block = 0; block < blocks; ++block) {
    wait_copies<Step::kAhead - 1>();
    sync_threads();
    fetch(block + Step::kAhead);  // where the step before this one was read
    if (!has_work) continue;
    const auto stage = stages.part(block % Step::kStages * (Step::kBytes / 2));
    multiply_step<kType, Tile>(stage, panel, row, sums);
  }
  if (has_work) store_products<Tile>(args, first_output, first_row, sums);
}

// Any number of rows; meant for many. REQUIRES: panels of the matrix 16-byte aligned.
template <template <TensorType> class TileOf, class Launcher>
auto matmul_many(Launcher& launch, const MatmulArgs& args) {
  return with_quantised_type(args.w.type, [&](auto tag) {
    using Tile = TileOf<decltype(tag)::value>;
    const LaunchShape shape{.grid = {(args.w.outputs + Tile::kOutputs - 1) / Tile::kOutputs,
                                     (args.x.rows + Tile::kRows - 1) / Tile::kRows, 1},
                            .threads = Tile::kThreads};
    return launch(matmul_many_kernel<decltype(tag)::value, Tile>, shape, args);
  });
}

}  // namespace spillway::kernels::cuda
