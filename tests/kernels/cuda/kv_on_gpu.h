// Rows of K and V written into pages by a GPU's kernel.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cuda/operators.h"
#include "tests/kernels/attention_fixture.h"
#include "tests/kernels/cuda/guarded_rows.h"

namespace spillway::kernels::cuda {

inline DeviceSequence on_device(const AttentionSequence& part) {
  return {part.kv.table.data(), part.position, part.rows, part.first_row};
}

// Writes the parts' rows on the GPU; row r of a part is row first + r of `rows`.
inline void write_on_gpu(const AttentionCase& setup, std::byte* pages, uint32_t layer,
                         const std::vector<AttentionSequence>& parts, const TokenRows& rows,
                         uint32_t first) {
  std::vector<DeviceSequence> sequences;
  uint32_t pages_max = 0;
  for (const AttentionSequence& part : parts) {
    sequences.push_back(on_device(part));
    pages_max = std::max(pages_max, pages_touched(sequences.back(), setup.layout.page_tokens));
  }
  GpuUnderTest gpu;
  gpu.run(write_kv, {.kv = {setup.layout, pages},
                     .layer = layer,
                     .sequences = sequences.data(),
                     .sequence_count = static_cast<uint32_t>(sequences.size()),
                     .pages_max = pages_max,
                     .k = rows.k.data() + first * rows.kv_stride,
                     .v = rows.v.data() + first * rows.kv_stride,
                     .stride = rows.kv_stride});
}

}  // namespace spillway::kernels::cuda
