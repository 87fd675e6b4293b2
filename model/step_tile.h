// A step cut into tiles of at most `rows_max` rows, each run through all layers on its own: rows do
// not depend on the division, so scratch memory is bounded and stays in cache whatever the batch.
// Used by one thread at a time; memory is reused from tile to tile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/paged_kv.h"
#include "model/runner.h"

namespace spillway::model {

// One wanted row of logits. `active` counts the tile's rows that have any, ascending.
struct SampleRow {
  uint32_t active = 0;
  uint32_t sequence = 0;  // in the batch
  uint32_t sample = 0;    // in its sequence
  uint32_t position = 0;  // of the token drawn: one after the row's own
};

struct StepTile {
  std::vector<TokenId> tokens;                                     // (row)
  std::vector<uint32_t> positions;                                 // (row)
  std::vector<std::vector<kernels::AttentionSequence>> sequences;  // (group, sequence of the tile)
  std::vector<SampleRow> samples;
  std::vector<uint32_t> active_rows;  // (active) row in the tile, ascending
  uint32_t first_sequence = 0;        // in the batch

  uint32_t rows() const { return static_cast<uint32_t>(tokens.size()); }
};

// The memory that pages of a group lie in.
struct GroupPages {
  const kernels::KvGroupLayout* layout = nullptr;
  std::byte* base = nullptr;
};

class StepTiler {
 public:
  // `groups` and `batch` must outlive the tiler. REQUIRES: rows_max > 0.
  StepTiler(std::span<const GroupPages> groups, const StepBatch& batch, uint32_t rows_max)
      : groups_(groups), batch_(&batch), rows_max_(rows_max) {}

  // Fills the next tile; false when the batch has been covered.
  bool next(StepTile& tile);

 private:
  uint32_t add_rows(StepTile& tile, const SequenceStep& sequence, uint32_t room);
  void add_samples(StepTile& tile, const SequenceStep& sequence, uint32_t first_row,
                   uint32_t count);

  std::span<const GroupPages> groups_;
  const StepBatch* batch_;
  uint32_t rows_max_;
  uint32_t sequence_ = 0;  // next to take rows from
  uint32_t row_ = 0;       // in that sequence
  size_t sample_ = 0;      // in that sequence
};

}  // namespace spillway::model
