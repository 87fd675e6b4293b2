// Lays out all that a step needs on a GPU in one pinned buffer, cut into tiles: tokens, angles,
// block tables, sequences, rows that attend, rows whose logits are wanted. One copy brings it
// there.
//
// Sketch: 64 decoding streams at 8k, one group of 128 dimensions: 64 KB of angles, 128 KB of block
// tables; a tile of 512 prompt rows 0.5 MB, 10 us at PCIe's 50 GB/s.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "model/angle_cache.h"
#include "model/gpu_tile.h"
#include "model/mirrored_buffer.h"
#include "model/runner.h"
#include "model/step_tile.h"
#include "runtime/result.h"

namespace spillway::model {

// Engine thread. One step at a time: memory is reused from step to step.
class GpuStaging {
 public:
  // Fills tiles() and the buffer. `angles` are those of the groups. Fails where there is no memory.
  // REQUIRES: what copy_up() has enqueued before is done, and so is all that read it.
  Result<> prepare(kernels::Device& device, std::span<const GroupPages> groups,
                   std::span<AngleCache> angles, const StepBatch& batch, uint32_t tile_rows);
  void copy_up(kernels::Stream& stream) const { buffer_.copy_up(stream); }

  std::span<GpuTile> tiles() { return std::span(tiles_).first(count_); }

 private:
  template <class T>
  using Array = MirroredBuffer::Array<T>;

  void add_tables(const StepBatch& batch, size_t groups);
  GpuTile& next_tile();
  void add_rows(GpuTile& tile, std::span<AngleCache> angles);
  void add_group(GpuTileGroup& to, std::span<const GroupPages> groups, size_t group);
  void add_active_rows(GpuTile& tile, const StepBatch& batch);

  MirroredBuffer buffer_;
  StepTile tile_;
  std::vector<GpuTile> tiles_;  // of which count_ are this step's
  size_t count_ = 0;
  std::vector<const kernels::PageId*> tables_;  // (sequence of the batch, group) on the device
  std::vector<uint32_t> places_;                // (active row)
  std::vector<bool> whole_;                     // (active row)
};

}  // namespace spillway::model
