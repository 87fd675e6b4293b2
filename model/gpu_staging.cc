#include "model/gpu_staging.h"

#include <algorithm>
#include <bit>

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

// What the step is padded to for a graph; 0: it is no step for one.
uint32_t padded_rows(const StepBatch& batch, uint32_t rows_max) {
  const bool decodes =
      std::all_of(batch.sequences.begin(), batch.sequences.end(),
                  [](const SequenceStep& sequence) { return sequence.tokens.size() == 1; });
  if (batch.sequences.empty() || !decodes || !batch.layers_there.empty()) return 0;
  const size_t rows = std::bit_ceil(batch.sequences.size());
  return rows <= rows_max ? static_cast<uint32_t>(rows) : 0;
}

// Room for all arrays of a step that is padded to so many rows, but its block tables.
size_t graph_bytes(std::span<const AngleCache> angles, uint32_t rows) {
  size_t row_bytes = sizeof(int32_t) + sizeof(uint32_t) + sizeof(DeviceDraw);
  for (const AngleCache& group : angles) {
    row_bytes +=
        2 * size_t{group.dims()} * sizeof(float) + sizeof(DeviceSequence) + sizeof(DeviceQuery);
  }
  return rows * row_bytes + (3 + 4 * angles.size()) * MirroredBuffer::kAlignment;
}

}  // namespace

Result<> GpuStaging::reserve(kernels::Device& device, std::span<const GroupPages> groups,
                             std::span<const AngleCache> angles, const GpuStepLimits& limits) {
  CHECK(angles.size() == groups.size());
  limits_ = limits;
  return buffer_.reserve(
      device, bytes_max(groups, angles, limits) + graph_bytes(angles, limits.graph_rows));
}

void GpuStaging::prepare(std::span<const GroupPages> groups, std::span<AngleCache> angles,
                         const StepBatch& batch, uint32_t graph_rows) {
  CHECK(angles.size() == groups.size());
  CHECK(batch.sequences.size() <= limits_.sequences);
  count_ = 0;
  buffer_.clear();
  const uint32_t padded = padded_rows(batch, std::min(graph_rows, limits_.graph_rows));
  // What a graph reads is to lie in the same place in every step, so before what is of any size.
  const size_t front = padded == 0 ? 0 : graph_bytes(angles, padded);
  buffer_.seek(front);
  add_tables(batch, groups);
  StepTiler tiler(groups, batch, limits_.tile_rows);
  while (tiler.next(tile_)) {
    GpuTile& tile = next_tile();
    plan_groups(groups);
    tile.graph = graph_size(groups, padded);
    if (tile.graph.rows == 0) {
      add_tile(tile, groups, angles, batch);
      continue;
    }
    pad_plans(groups, tile.graph);
    const size_t end = buffer_.seek(0);
    add_tile(tile, groups, angles, batch);
    const size_t graph_end = buffer_.seek(end);
    CHECK(graph_end <= front);
  }
}

void GpuStaging::add_tile(GpuTile& tile, std::span<const GroupPages> groups,
                          std::span<AngleCache> angles, const StepBatch& batch) {
  tile.rows = std::max(tile_.rows(), tile.graph.rows);
  tile.sequences = std::max(static_cast<uint32_t>(tile_.sequences[0].size()), tile.graph.rows);
  tile.groups.resize(groups.size());
  add_rows(tile, angles);
  for (size_t g = 0; g < groups.size(); ++g) {
    add_sequences(tile, groups, g);
    add_attention(tile.groups[g], g);
  }
  add_active_rows(tile, batch);
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
  std::fill(std::copy(tile_.tokens.begin(), tile_.tokens.end(), tokens.host),
            tokens.host + tile.rows, 0);
  tile.tokens = tokens.device;
  for (size_t g = 0; g < angles.size(); ++g) {
    const size_t width = 2 * size_t{angles[g].dims()};
    const Array<float> rows = buffer_.take<float>(tile.rows * width);
    float* to = rows.host;
    for (uint32_t r = 0; r < tile_.rows(); ++r) {
      const auto row = angles[g].at(tile_.positions[r]);
      to = std::copy(row.begin(), row.end(), to);
    }
    std::fill(to, rows.host + tile.rows * width, 0.0f);
    tile.groups[g].angles = rows.device;
  }
}

const PageId* GpuStaging::table(size_t sequence, size_t group) const {
  const size_t groups = tile_.sequences.size();
  return tables_[(tile_.first_sequence + sequence) * groups + group];
}

void GpuStaging::plan_groups(std::span<const GroupPages> groups) {
  plans_.clear();
  for (size_t g = 0; g < groups.size(); ++g) {
    attending_.clear();
    for (size_t s = 0; s < tile_.sequences[g].size(); ++s) {
      const kernels::AttentionSequence& part = tile_.sequences[g][s];
      attending_.push_back({.pages = part.kv.table,
                            .table = table(s, g),
                            .position = part.position,
                            .rows = part.rows,
                            .first_row = part.first_row});
    }
    plans_.push_back(
        plan_attention(*groups[g].layout, limits_.heads, attending_, limits_.attention));
  }
}

// A graph's launches are those of its size. Rows that share pages attend in tiles, which save more
// than launches cost; rows too many for the scratch attend in parts.
GpuGraphSize GpuStaging::graph_size(std::span<const GroupPages> groups, uint32_t rows) const {
  if (rows == 0) return {};
  uint32_t splits = 1;
  for (const auto& plans : plans_) {
    if (plans.size() != 1 || !plans[0].tiles.empty()) return {};
    splits = std::max(splits, plans[0].splits_max);
  }
  const GpuGraphSize size{.rows = rows, .splits = std::bit_ceil(splits)};
  for (const GroupPages& group : groups) {
    if (size_t{rows} * splits_of(group, size) > limits_.attention.partials_max) return {};
  }
  return size;
}

uint32_t GpuStaging::splits_of(const GroupPages& group, const GpuGraphSize& size) const {
  return std::min(size.splits, splits_seen_max(*group.layout, limits_.context_tokens));
}

void GpuStaging::pad_plans(std::span<const GroupPages> groups, const GpuGraphSize& size) {
  for (size_t g = 0; g < groups.size(); ++g) {
    kernels::cuda::AttentionTilePlan& plan = plans_[g][0];
    plan.splits_max = splits_of(groups[g], size);
    while (plan.queries.size() < size.rows) {
      const auto row = static_cast<uint32_t>(plan.queries.size());
      plan.queries.push_back({.row = row, .first_own_split = UINT32_MAX});
    }
  }
}

void GpuStaging::add_sequences(GpuTile& tile, std::span<const GroupPages> groups, size_t group) {
  GpuTileGroup& to = tile.groups[group];
  const std::vector<kernels::AttentionSequence>& parts = tile_.sequences[group];
  const Array<DeviceSequence> sequences = buffer_.take<DeviceSequence>(tile.sequences);
  std::fill_n(sequences.host, tile.sequences, DeviceSequence{});
  to.sequences = sequences.device;
  to.pages_max = 0;
  for (size_t s = 0; s < parts.size(); ++s) {
    const kernels::AttentionSequence& part = parts[s];
    sequences.host[s] = {table(s, group), part.position, part.rows, part.first_row};
    to.pages_max = std::max(
        to.pages_max,
        kernels::cuda::pages_touched(sequences.host[s], groups[group].layout->page_tokens));
  }
}

void GpuStaging::add_attention(GpuTileGroup& to, size_t group) {
  to.attention.clear();
  for (const auto& plan : plans_[group]) {
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
  tile.kept = std::max(tile.active, tile.graph.rows);
  places_.resize(tile.active);
  const Array<uint32_t> rows = buffer_.take<uint32_t>(tile.kept);
  uint32_t next_whole = 0, next_drawn = tile.whole;
  // A graph's kernels gather in every step.
  bool in_order = tile.active == tile.rows && tile.graph.rows == 0;
  for (uint32_t a = 0; a < tile.active; ++a) {
    places_[a] = whole_[a] ? next_whole++ : next_drawn++;
    rows.host[places_[a]] = tile_.active_rows[a];
    in_order &= places_[a] == tile_.active_rows[a];
  }
  for (uint32_t a = tile.active; a < tile.kept; ++a) rows.host[a] = a;
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
