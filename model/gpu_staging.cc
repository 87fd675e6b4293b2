#include "model/gpu_staging.h"

#include <algorithm>

#include "model/sampler.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

using kernels::PageId;
using kernels::cuda::DeviceQuery;
using kernels::cuda::DeviceSequence;

// Room for a step's arrays, whatever its tiles are.
size_t bytes_max(std::span<AngleCache> angles, const StepBatch& batch, uint32_t tile_rows) {
  size_t rows = 0, bytes = 0;
  for (const SequenceStep& sequence : batch.sequences) {
    rows += sequence.tokens.size();
    for (const auto& table : sequence.tables) {
      bytes += MirroredBuffer::bytes_max<PageId>(table.size());
    }
  }
  // In tiles the arrays are the same in all, but for what aligns each. A row is at most a
  // sequence's part of a tile.
  const size_t tiles = (rows + tile_rows - 1) / tile_rows;
  const size_t arrays = tiles * (2 + 3 * angles.size());
  size_t row_bytes = sizeof(int32_t) + sizeof(uint32_t);
  for (const AngleCache& group : angles) {
    row_bytes +=
        2 * size_t{group.dims()} * sizeof(float) + sizeof(DeviceSequence) + sizeof(DeviceQuery);
  }
  return bytes + rows * row_bytes + arrays * MirroredBuffer::kAlignment;
}

}  // namespace

Result<> GpuStaging::prepare(kernels::Device& device, std::span<const GroupPages> groups,
                             std::span<AngleCache> angles, const StepBatch& batch,
                             uint32_t tile_rows) {
  CHECK(angles.size() == groups.size());
  count_ = 0;
  const auto room = buffer_.reset(device, bytes_max(angles, batch, tile_rows));
  if (!room) return room.error();
  add_tables(batch, groups.size());
  StepTiler tiler(groups, batch, tile_rows);
  while (tiler.next(tile_)) {
    GpuTile& tile = next_tile();
    tile.rows = tile_.rows();
    tile.sequences = static_cast<uint32_t>(tile_.sequences[0].size());
    tile.groups.resize(groups.size());
    add_rows(tile, angles);
    for (size_t g = 0; g < groups.size(); ++g) add_group(tile.groups[g], groups, g);
    add_active_rows(tile, batch);
  }
  return {};
}

GpuTile& GpuStaging::next_tile() {
  if (count_ == tiles_.size()) tiles_.emplace_back();
  return tiles_[count_++];
}

void GpuStaging::add_tables(const StepBatch& batch, size_t groups) {
  tables_.clear();
  for (const SequenceStep& sequence : batch.sequences) {
    CHECK(sequence.tables.size() == groups);
    for (const auto& table : sequence.tables) {
      const Array<PageId> array = buffer_.take<PageId>(table.size());
      std::copy(table.begin(), table.end(), array.host);
      tables_.push_back(array.device);
    }
  }
}

void GpuStaging::add_rows(GpuTile& tile, std::span<AngleCache> angles) {
  const Array<int32_t> tokens = buffer_.take<int32_t>(tile.rows);
  std::copy(tile_.tokens.begin(), tile_.tokens.end(), tokens.host);
  tile.tokens = tokens.device;
  for (size_t g = 0; g < angles.size(); ++g) {
    const size_t width = 2 * size_t{angles[g].dims()};
    const Array<float> rows = buffer_.take<float>(tile.rows * width);
    for (uint32_t r = 0; r < tile.rows; ++r) {
      const auto row = angles[g].at(tile_.positions[r]);
      std::copy(row.begin(), row.end(), rows.host + r * width);
    }
    tile.groups[g].angles = rows.device;
  }
}

void GpuStaging::add_group(GpuTileGroup& to, std::span<const GroupPages> groups, size_t group) {
  const kernels::KvGroupLayout& layout = *groups[group].layout;
  const std::vector<kernels::AttentionSequence>& parts = tile_.sequences[group];
  const Array<DeviceSequence> sequences = buffer_.take<DeviceSequence>(parts.size());
  const Array<DeviceQuery> queries = buffer_.take<DeviceQuery>(tile_.rows());
  to.sequences = sequences.device;
  to.queries = queries.device;
  to.pages_max = 0;
  to.splits_max = 0;
  for (size_t s = 0; s < parts.size(); ++s) {
    const kernels::AttentionSequence& part = parts[s];
    const PageId* table = tables_[(tile_.first_sequence + s) * groups.size() + group];
    sequences.host[s] = {table, part.position, part.rows, part.first_row};
    to.pages_max =
        std::max(to.pages_max, kernels::cuda::pages_touched(sequences.host[s], layout.page_tokens));
    for (uint32_t r = 0; r < part.rows; ++r) {
      const uint32_t position = part.position + r;
      queries.host[part.first_row + r] = {table, position, part.first_row + r};
      to.splits_max = std::max(to.splits_max, kernels::cuda::splits_seen(layout, position));
    }
  }
}

void GpuStaging::add_active_rows(GpuTile& tile, const StepBatch& batch) {
  tile.active = static_cast<uint32_t>(tile_.active_rows.size());
  whole_.assign(tile.active, false);
  for (const SampleRow& sample : tile_.samples) {
    const SampleRequest& request = batch.sequences[sample.sequence].samples[sample.sample];
    if (!is_greatest_alone(request)) whole_[sample.active] = true;
  }
  tile.whole = static_cast<uint32_t>(std::count(whole_.begin(), whole_.end(), true));
  places_.resize(tile.active);
  const Array<uint32_t> rows = buffer_.take<uint32_t>(tile.active);
  uint32_t next_whole = 0, next_choice = tile.whole;
  bool in_order = tile.active == tile.rows;
  for (uint32_t a = 0; a < tile.active; ++a) {
    places_[a] = whole_[a] ? next_whole++ : next_choice++;
    rows.host[places_[a]] = tile_.active_rows[a];
    in_order &= places_[a] == tile_.active_rows[a];
  }
  tile.active_rows = in_order ? nullptr : rows.device;
  tile.samples.clear();
  for (const SampleRow& sample : tile_.samples) {
    tile.samples.push_back({.wanted = sample, .place = places_[sample.active]});
  }
}

}  // namespace spillway::model
