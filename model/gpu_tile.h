// A tile of a step (step_tile.h) as a GPU's operators take it: where its arrays lie in device
// memory. What is written there and what comes back: gpu_staging.h and gpu_results.h.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/operators.h"
#include "kernels/cuda/sampling.h"
#include "model/step_tile.h"

namespace spillway::model {

// Rows that attend at once: as TiledAttentionArgs takes them.
struct GpuAttention {
  const kernels::cuda::DeviceQuery* queries = nullptr;  // (query_count)
  const kernels::cuda::DeviceTile* tiles = nullptr;     // (tile_count)
  uint32_t query_count = 0;
  uint32_t tile_count = 0;
  uint32_t tiled_queries = 0;
  uint32_t whole_queries = 0;
  uint32_t splits_max = 0;
};

// The tile's rows to the layers of one group.
struct GpuTileGroup {
  const float* angles = nullptr;                             // (row, 2, dims)
  const kernels::cuda::DeviceSequence* sequences = nullptr;  // (sequence)
  uint32_t pages_max = 0;                                    // that a sequence's rows touch
  std::vector<GpuAttention> attention;                       // one after the other
};

// What a step is padded to that is laid out for a graph (gpu_graphs.h).
struct GpuGraphSize {
  uint32_t rows = 0;    // 0: it is not
  uint32_t splits = 0;  // that a row sees at most, of any group; a power of two
  auto operator<=>(const GpuGraphSize&) const = default;
};

// A wanted sample. `place` counts the tile's active rows in the order in which they are computed:
// those of which whole rows of logits come down, then those that the device draws from.
struct GpuSample {
  SampleRow wanted;
  uint32_t place = 0;
};

struct GpuTile {
  uint32_t rows = 0;  // those that pad it among them, the last: they are part of no sequence
  uint32_t sequences = 0;
  GpuGraphSize graph;
  const int32_t* tokens = nullptr;        // (row)
  std::vector<GpuTileGroup> groups;       // (group)
  const uint32_t* active_rows = nullptr;  // (place) row; null where they are all rows in order
  uint32_t active = 0;                    // places
  uint32_t kept = 0;                      // the same, and what pads them
  uint32_t whole = 0;                     // of these, the first, whose logits come down
  const kernels::cuda::DeviceDraw* draws = nullptr;  // (place - whole): how the others are drawn
  std::vector<GpuSample> samples;
  size_t results_at = 0;  // in the step's results
};

// Logits are computed in chunks of rows. A chunk leaves what was drawn from its rows, reports,
// (chunk_rows), and tokens, (chunk_rows), and behind them the logits of all; of these the wanted
// ones, which are first, come down with the rest in one copy.
struct LogitsShape {
  uint32_t vocabulary = 0;
  uint32_t chunk_rows = 0;

  size_t tokens_at() const { return chunk_rows * sizeof(kernels::cuda::DeviceReport); }
  size_t drawn_bytes() const { return (tokens_at() + chunk_rows * sizeof(int32_t) + 15) / 16 * 16; }
  size_t row_bytes() const { return size_t{vocabulary} * sizeof(float); }
  uint32_t rows_of(const GpuTile& tile, uint32_t first) const {
    return std::min(chunk_rows, tile.active - first);
  }
  // Rows of the chunk from `first` on that come down whole.
  uint32_t whole_of(const GpuTile& tile, uint32_t first) const {
    return tile.whole <= first ? 0 : std::min(tile.whole - first, rows_of(tile, first));
  }
  // Where that chunk lies among the tile's results, and its bytes there.
  size_t offset(const GpuTile& tile, uint32_t first) const {
    return first / chunk_rows * drawn_bytes() + std::min(first, tile.whole) * row_bytes();
  }
  size_t bytes(const GpuTile& tile, uint32_t first) const {
    return drawn_bytes() + whole_of(tile, first) * row_bytes();
  }
  size_t tile_bytes(const GpuTile& tile) const {
    const uint32_t chunks = (tile.active + chunk_rows - 1) / chunk_rows;
    return chunks * drawn_bytes() + tile.whole * row_bytes();
  }
};

}  // namespace spillway::model
