// What matmul() hands to a level's kernels, and how they cut rows into tiles. Internal to kernels/.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/activations.h"
#include "kernels/matrix.h"

namespace spillway::kernels {

struct MatmulJob {
  const PackedMatrix* w = nullptr;
  Activations x;
  float* y = nullptr;
  size_t y_stride = 0;

  // Columns of y that panel `index` covers: 16, or fewer in the last one.
  uint32_t columns_of(uint32_t index) const {
    return std::min(kPanelColumns, w->shape().outputs - index * kPanelColumns);
  }
};

// Computes the panels [first, end) of y for all rows.
using PanelKernel = void (*)(const MatmulJob& job, uint32_t first, uint32_t end);

void matmul_panels_avx512(const MatmulJob& job, uint32_t first, uint32_t end);

// `rows` cut into the fewest tiles of at most `rows_max`, all of nearly the same height.
struct RowTiles {
  uint32_t rows;
  uint32_t count;

  RowTiles(uint32_t rows_in, uint32_t rows_max)
      : rows(rows_in), count((rows_in + rows_max - 1) / rows_max) {}
  uint32_t first(uint32_t tile) const {
    return static_cast<uint32_t>(uint64_t{rows} * tile / count);
  }
};

}  // namespace spillway::kernels
