// Lays out all that a step needs on a GPU in one pinned buffer, cut into tiles: tokens, angles,
// block tables, sequences, rows that attend and their tiles, rows whose logits are wanted and how
// tokens are drawn from them. One copy brings it there.
//
// A step of one row a sequence may be laid out for a graph (gpu_graphs.h): padded with rows that
// write nowhere and attend to nothing, and with all arrays but the block tables where they would
// lie in any step of its size.
//
// Sketch: 64 decoding streams at 8k, one group of 128 dimensions: 64 KB of angles, 128 KB of block
// tables; a tile of 512 prompt rows 0.5 MB, 10 us at PCIe's 50 GB/s. Room for the largest step: of
// 2,048 rows in 256 sequences of up to 128k tokens, 8 MB of tables and 5 of the rest a group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/attention_tiles.h"
#include "kernels/device.h"
#include "model/angle_cache.h"
#include "model/gpu_tile.h"
#include "model/mirrored_buffer.h"
#include "model/runner.h"
#include "model/step_tile.h"
#include "runtime/result.h"

namespace spillway::model {

// The largest step that there may be, and how it is cut.
struct GpuStepLimits {
  uint32_t rows = 0;
  uint32_t sequences = 0;
  uint32_t context_tokens = 0;  // no position is past this
  uint32_t tile_rows = 0;
  uint32_t heads = 0;       // of queries
  uint32_t graph_rows = 0;  // rows that a step may be padded to; 0: none is
  kernels::cuda::TileLimits attention;
};

// Engine thread. One step at a time: memory is reused from step to step.
class GpuStaging {
 public:
  // Once, before the first step: room for every step within the limits. `angles` are those of the
  // groups. Fails where the device has too little memory.
  Result<> reserve(kernels::Device& device, std::span<const GroupPages> groups,
                   std::span<const AngleCache> angles, const GpuStepLimits& limits);
  // Fills tiles() and the buffer. A step of no more than `graph_rows` rows is laid out for a graph
  // where it can be, which is up to limits.graph_rows. REQUIRES: what copy_up() has enqueued before
  // is done, and so is all that read it.
  void prepare(std::span<const GroupPages> groups, std::span<AngleCache> angles,
               const StepBatch& batch, uint32_t graph_rows);
  void copy_up(kernels::Stream& stream) const { buffer_.copy_up(stream); }

  std::span<GpuTile> tiles() { return std::span(tiles_).first(count_); }

 private:
  template <class T>
  using Array = MirroredBuffer::Array<T>;

  void add_tables(const StepBatch& batch, std::span<const GroupPages> groups);
  GpuTile& next_tile();
  void plan_groups(std::span<const GroupPages> groups);
  const kernels::PageId* table(size_t sequence, size_t group) const;  // of the tile
  // What a step of so many rows is padded to, as planned; nothing where a graph would not do.
  GpuGraphSize graph_size(std::span<const GroupPages> groups, uint32_t rows) const;
  uint32_t splits_of(const GroupPages& group, const GpuGraphSize& size) const;
  void pad_plans(std::span<const GroupPages> groups, const GpuGraphSize& size);
  void add_tile(GpuTile& tile, std::span<const GroupPages> groups, std::span<AngleCache> angles,
                const StepBatch& batch);
  void add_rows(GpuTile& tile, std::span<AngleCache> angles);
  void add_sequences(GpuTile& tile, std::span<const GroupPages> groups, size_t group);
  void add_attention(GpuTileGroup& to, size_t group);
  void add_active_rows(GpuTile& tile, const StepBatch& batch);
  void add_samples(GpuTile& tile, const StepBatch& batch);

  GpuStepLimits limits_;
  MirroredBuffer buffer_;
  StepTile tile_;
  std::vector<GpuTile> tiles_;  // of which count_ are this step's
  size_t count_ = 0;
  std::vector<const kernels::PageId*> tables_;  // (sequence of the batch, group) on the device
  std::vector<kernels::cuda::TiledSequence> attending_;               // (sequence of the tile)
  std::vector<std::vector<kernels::cuda::AttentionTilePlan>> plans_;  // (group)
  std::vector<uint32_t> places_;                                      // (active row)
  std::vector<bool> whole_;                                           // (active row)
};

}  // namespace spillway::model
