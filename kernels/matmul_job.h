// What matmul() hands to a level's kernels, and how they cut rows and blocks into parts. Internal
// to kernels/.
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

// Each level's kernels compute the panels [first, end) of y for all rows; there is at least one.
void matmul_panels_baseline(const MatmulJob& job, uint32_t first, uint32_t end);
void matmul_panels_avx2(const MatmulJob& job, uint32_t first, uint32_t end);
void matmul_panels_avxvnni(const MatmulJob& job, uint32_t first, uint32_t end);
void matmul_panels_avx512(const MatmulJob& job, uint32_t first, uint32_t end);

// `items` cut into the fewest parts of at most `items_max`, all of nearly the same size.
struct EvenParts {
  uint32_t items;
  uint32_t count;

  EvenParts(uint32_t items_in, uint32_t items_max)
      : items(items_in), count((items_in + items_max - 1) / items_max) {}
  uint32_t first(uint32_t part) const {
    return static_cast<uint32_t>(uint64_t{items} * part / count);
  }
};

}  // namespace spillway::kernels
