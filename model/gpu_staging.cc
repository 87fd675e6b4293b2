#include "model/gpu_staging.h"

#include <algorithm>

#include "model/device_sampling.h"
#include "model/gpu_attention_plan.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

using kernels::PageId;
using kernels::cuda::DeviceDraw;
using kernels::cuda::DeviceQuery;
using kernels::cuda::DeviceSequence;
using kernels::cuda::DeviceTile;

// Pages that hold so many tokens.
size_t pages_of(const kernels::KvGroupLayout& layout, size_t tokens) {
  return (tokens + layout.page_tokens - 1) / layout.page_tokens;
}

// Room for the arrays of one group, whatever the step's tiles are.
size_t group_bytes_max(const kernels::KvGroupLayout& layout, uint32_t dims,
                       const GpuStepLimits& limits) {
  const size_t tables =
      limits.sequences * MirroredBuffer::bytes_max<PageId>(pages_of(layout, limits.context_tokens));
  // A row is at most a sequence's part of a tile, and at most a part of its attention: with two
  // arrays, beside the tile's two.
  const size_t row_bytes = 2 * size_t{dims} * sizeof(float) + sizeof(DeviceSequence) +
                           sizeof(DeviceQuery) + 4 * MirroredBuffer::kAlignment;
  const size_t tiles =
      attention_tiles_max(layout, limits.heads, limits.rows, limits.context_tokens);
  return tables + limits.rows * row_bytes + tiles * sizeof(DeviceTile);
}

size_t bytes_max(std::span<const GroupPages> groups, std::span<const AngleCache> angles,
                 const GpuStepLimits& limits) {
  size_t bytes = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    bytes += group_bytes_max(*groups[g].layout, angles[g].dims(), limits);
  }
  // Tokens, active rows and draws: three arrays a tile, and a tile has a row.
  return bytes + limits.rows * (sizeof(int32_t) + sizeof(uint32_t) + sizeof(DeviceDraw) +
                                3 * MirroredBuffer::kAlignment);
}

}  // namespace

Result<> GpuStaging::reserve(kernels::Device& device, std::span<const GroupPages> groups,
                             std::span<const AngleCache> angles, const GpuStepLimits& limits) {
  CHECK(angles.size() == groups.size());
  limits_ = limits;
  return buffer_.reserve(device, bytes_max(groups, angles, limits));
}

void GpuStaging::prepare(std::span<const GroupPages> groups, std::span<AngleCache> angles,
                         const StepBatch& batch) {
  CHECK(angles.size() == groups.size());
  CHECK(batch.sequences.size() <= limits_.sequences);
  count_ = 0;
  buffer_.clear();
  add_tables(batch, groups);
  StepTiler tiler(groups, batch, limits_.tile_rows);
  while (tiler.next(tile_)) {
    GpuTile& tile = next_tile();
    tile.rows = tile_.rows();
    tile.sequences = static_cast<uint32_t>(tile_.sequences[0].size());
    tile.groups.resize(groups.size());
    add_rows(tile, angles);
    for (size_t g = 0; g < groups.size(); ++g) add_group(tile.groups[g], groups, g);
    add_active_rows(tile, batch);
  }
}

GpuTile& GpuStaging::next_tile() {
  if (count_ == tiles_.size()) tiles_.emplace_back();
  return tiles_[count_++];
}

void GpuStaging::add_tables(const StepBatch& batch, std::span<const GroupPages> groups) {
  tables_.clear();
  for (const SequenceStep& sequence : batch.sequences) {
    CHECK(sequence.tables.size() == groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto& table = sequence.tables[g];
      const size_t pages = pages_of(*groups[g].layout, sequence.position + sequence.tokens.size());
      CHECK(table.size() >= pages);
      const Array<PageId> array = buffer_.take<PageId>(pages);
      std::copy_n(table.begin(), pages, array.host);
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
  to.sequences = sequences.device;
  to.pages_max = 0;
  attending_.clear();
  for (size_t s = 0; s < parts.size(); ++s) {
    const kernels::AttentionSequence& part = parts[s];
    const PageId* table = tables_[(tile_.first_sequence + s) * groups.size() + group];
    sequences.host[s] = {table, part.position, part.rows, part.first_row};
    to.pages_max =
        std::max(to.pages_max, kernels::cuda::pages_touched(sequences.host[s], layout.page_tokens));
    attending_.push_back({.pages = part.kv.table,
                          .table = table,
                          .position = part.position,
                          .rows = part.rows,
                          .first_row = part.first_row});
  }
  add_attention(to, layout);
}

void GpuStaging::add_attention(GpuTileGroup& to, const kernels::KvGroupLayout& layout) {
  to.attention.clear();
  for (const auto& plan : plan_attention(layout, limits_.heads, attending_, limits_.attention)) {
    const Array<DeviceQuery> queries = buffer_.take<DeviceQuery>(plan.queries.size());
    const Array<DeviceTile> tiles = buffer_.take<DeviceTile>(plan.tiles.size());
    std::copy(plan.queries.begin(), plan.queries.end(), queries.host);
    std::copy(plan.tiles.begin(), plan.tiles.end(), tiles.host);
    to.attention.push_back({.queries = queries.device,
                            .tiles = tiles.device,
                            .query_count = static_cast<uint32_t>(plan.queries.size()),
                            .tile_count = static_cast<uint32_t>(plan.tiles.size()),
                            .tiled_queries = plan.tiled_queries,
                            .whole_queries = plan.whole_queries,
                            .splits_max = plan.splits_max});
  }
}

void GpuStaging::add_active_rows(GpuTile& tile, const StepBatch& batch) {
  tile.active = static_cast<uint32_t>(tile_.active_rows.size());
  whole_.assign(tile.active, false);
  uint32_t last = UINT32_MAX;
  for (const SampleRow& sample : tile_.samples) {
    const SampleRequest& request = batch.sequences[sample.sequence].samples[sample.sample];
    // Several choices of a prompt are drawn from one row, and its first token is theirs alone.
    if (sample.active == last || !sampled_on_device(request)) whole_[sample.active] = true;
    last = sample.active;
  }
  tile.whole = static_cast<uint32_t>(std::count(whole_.begin(), whole_.end(), true));
  places_.resize(tile.active);
  const Array<uint32_t> rows = buffer_.take<uint32_t>(tile.active);
  uint32_t next_whole = 0, next_drawn = tile.whole;
  bool in_order = tile.active == tile.rows;
  for (uint32_t a = 0; a < tile.active; ++a) {
    places_[a] = whole_[a] ? next_whole++ : next_drawn++;
    rows.host[places_[a]] = tile_.active_rows[a];
    in_order &= places_[a] == tile_.active_rows[a];
  }
  tile.active_rows = in_order ? nullptr : rows.device;
  add_samples(tile, batch);
}

void GpuStaging::add_samples(GpuTile& tile, const StepBatch& batch) {
  const Array<DeviceDraw> draws = buffer_.take<DeviceDraw>(tile.active - tile.whole);
  tile.draws = draws.device;
  tile.samples.clear();
  for (const SampleRow& sample : tile_.samples) {
    const uint32_t place = places_[sample.active];
    tile.samples.push_back({.wanted = sample, .place = place});
    if (place < tile.whole) continue;
    draws.host[place - tile.whole] =
        device_draw(batch.sequences[sample.sequence].samples[sample.sample], sample.position);
  }
}

}  // namespace spillway::model
