#include "model/step_tile.h"

#include <algorithm>

#include "runtime/check.h"

namespace spillway::model {

bool StepTiler::next(StepTile& tile) {
  tile.tokens.clear();
  tile.positions.clear();
  tile.samples.clear();
  tile.active_rows.clear();
  tile.sequences.resize(groups_.size());
  for (auto& list : tile.sequences) list.clear();
  tile.first_sequence = sequence_;
  while (sequence_ < batch_->sequences.size() && tile.rows() < rows_max_) {
    const SequenceStep& sequence = batch_->sequences[sequence_];
    row_ += add_rows(tile, sequence, rows_max_ - tile.rows());
    if (row_ < sequence.tokens.size()) break;
    CHECK(sample_ == sequence.samples.size());  // rows are in range and ascend
    ++sequence_;
    row_ = 0;
    sample_ = 0;
  }
  return tile.rows() > 0;
}

// Takes up to `room` rows of the sequence from row_ on; returns how many.
uint32_t StepTiler::add_rows(StepTile& tile, const SequenceStep& sequence, uint32_t room) {
  CHECK(!sequence.tokens.empty());
  CHECK(sequence.tables.size() == groups_.size());
  const auto left = static_cast<uint32_t>(sequence.tokens.size()) - row_;
  const uint32_t count = std::min(left, room);
  const uint32_t first_row = tile.rows();
  for (size_t g = 0; g < groups_.size(); ++g) {
    tile.sequences[g].push_back(
        {.kv = {.layout = groups_[g].layout, .pages = groups_[g].base, .table = sequence.tables[g]},
         .position = sequence.position + row_,
         .rows = count,
         .first_row = first_row});
  }
  for (uint32_t i = row_; i < row_ + count; ++i) {
    tile.tokens.push_back(sequence.tokens[i]);
    tile.positions.push_back(sequence.position + i);
  }
  add_samples(tile, sequence, first_row, count);
  return count;
}

void StepTiler::add_samples(StepTile& tile, const SequenceStep& sequence, uint32_t first_row,
                            uint32_t count) {
  for (; sample_ < sequence.samples.size(); ++sample_) {
    const uint32_t row = sequence.samples[sample_].row;
    CHECK(row >= row_);
    if (row >= row_ + count) break;
    const uint32_t tile_row = first_row + row - row_;
    // Several samples may share a row: choices of one prompt.
    if (tile.active_rows.empty() || tile.active_rows.back() != tile_row) {
      tile.active_rows.push_back(tile_row);
    }
    tile.samples.push_back({.active = static_cast<uint32_t>(tile.active_rows.size() - 1),
                            .sequence = sequence_,
                            .sample = static_cast<uint32_t>(sample_),
                            .position = sequence.position + row + 1});
  }
}

}  // namespace spillway::model
