#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/aligned_floats.h"
#include "kernels/attention_levels.h"
#include "kernels/attention_plan.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

constexpr uint32_t kHeadDimMax = 1024;

// One worker's memory, sized once for the largest tile.
struct Workspace {
  AlignedFloats q, keys, values, scores, lanes;
  AlignedFloats part_max, part_sum, part_out;
  AlignedFloats total_max, total_sum, total_out;
  uint32_t first[kTileRows];
  uint32_t end[kTileRows];

  Workspace(uint32_t head_dim, uint32_t padded_dim)
      : q(size_t{kTileRows} * head_dim),
        keys(size_t{kAttentionBlockTokens} * head_dim),
        values(size_t{kAttentionBlockTokens} * padded_dim),
        scores(kRowGroup * kAttentionBlockTokens),
        lanes(kTileRows * 16),
        part_max(kTileRows),
        part_sum(kTileRows),
        part_out(size_t{kTileRows} * padded_dim),
        total_max(kTileRows),
        total_sum(kTileRows),
        total_out(size_t{kTileRows} * padded_dim) {}

  AttentionSums part() { return {part_max.data(), part_sum.data(), part_out.data()}; }
  AttentionSums total() { return {total_max.data(), total_sum.data(), total_out.data()}; }
};

void clear(const AttentionSums& sums, uint32_t rows, uint32_t padded_dim) {
  std::fill_n(sums.max, rows, kNothingSeen);
  std::fill_n(sums.sum, rows, 0.0f);
  std::fill_n(sums.out, size_t{rows} * padded_dim, 0.0f);
}

}  // namespace

const AttentionKernels& attention_kernels(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return attention_kernels_avx512();
  if (level >= CpuLevel::kAvx2) return attention_kernels_avx2();
  return attention_kernels_baseline();
}

struct AttentionPlan::Impl {
  Impl(CpuLevel level, const KvGroupLayout& layout, const AttentionShape& shape);

  void attend(const AttentionUnit& unit, uint32_t layer, const AttentionRows& rows,
              Workspace& space);
  AttentionTile make_tile(const AttentionUnit& unit, uint32_t layer, const AttentionRows& rows,
                          Workspace& space);
  void merge_rows(const AttentionMerge& merge, uint32_t row, const AttentionRows& rows,
                  Workspace& space);
  void finish_row(const AttentionSequence& sequence, uint32_t kv_head, uint32_t row,
                  const AttentionSums& sums, uint32_t index, const AttentionRows& rows);
  AttentionSums partial_sums(uint32_t row) {
    return {partial_max.data() + row, partial_sum.data() + row,
            partial_out.data() + size_t{row} * padded_dim};
  }
  size_t head_column(uint32_t kv_head, uint32_t row) const {
    return size_t{kv_head * group_heads + row % group_heads} * layout.head_dim;
  }

  const AttentionKernels& kernels;
  const KvGroupLayout layout;
  const AttentionScaling scaling;
  const uint32_t group_heads;  // query heads per kv head
  const uint32_t padded_dim;
  std::vector<AttentionSequence> sequences;
  AttentionCut cut;
  AlignedFloats partial_max, partial_sum, partial_out;
  std::vector<std::unique_ptr<Workspace>> spaces;  // one per worker
  std::atomic<uint32_t> next_unit{0};
  std::atomic<uint32_t> finished{0};  // workers past their last unit
};

AttentionPlan::Impl::Impl(CpuLevel level, const KvGroupLayout& shape_of_kv,
                          const AttentionShape& shape)
    : kernels(attention_kernels(level)),
      layout(shape_of_kv),
      scaling(attention_scaling(shape)),
      group_heads(shape.heads / shape_of_kv.kv_heads),
      padded_dim((shape_of_kv.head_dim + 15) / 16 * 16) {}

// The tile of a unit: its rows' q, scaled, and what each sees.
AttentionTile AttentionPlan::Impl::make_tile(const AttentionUnit& unit, uint32_t layer,
                                             const AttentionRows& rows, Workspace& space) {
  const AttentionSequence& sequence = sequences[unit.sequence];
  const uint32_t dims = layout.head_dim;
  for (uint32_t r = 0; r < unit.rows; ++r) {
    const uint32_t row = unit.first_row + r;
    const uint32_t offset = row / group_heads;
    space.first[r] = first_seen(layout, sequence.position + offset);
    space.end[r] = sequence.position + offset + 1;
    const float* q =
        rows.q + (sequence.first_row + offset) * rows.q_stride + head_column(unit.kv_head, row);
    kernels.scale_query(space.q.data() + size_t{r} * dims, q, scaling.query, dims);
  }
  return {.layout = &layout,
          .kv = &sequence.kv,
          .scaling = scaling,
          .layer = layer,
          .kv_head = unit.kv_head,
          .rows = unit.rows,
          .padded_dim = padded_dim,
          .first = space.first,
          .end = space.end,
          .q = space.q.data(),
          .keys = space.keys.data(),
          .values = space.values.data(),
          .scores = space.scores.data(),
          .lanes = space.lanes.data(),
          .part = space.part()};
}

void AttentionPlan::Impl::attend(const AttentionUnit& unit, uint32_t layer,
                                 const AttentionRows& rows, Workspace& space) {
  AttentionTile tile = make_tile(unit, layer, rows, space);
  if (unit.partial != AttentionUnit::kWhole) {
    for (uint32_t s = 0; s < unit.splits; ++s) {
      tile.part = partial_sums(unit.partial + s * unit.rows);
      kernels.attend_split(tile, unit.first_split + s);
    }
    return;
  }
  // Merging the first split into nothing would change no bit.
  const AttentionSums total = space.total();
  tile.part = total;
  kernels.attend_split(tile, unit.first_split);
  tile.part = space.part();
  for (uint32_t s = 1; s < unit.splits; ++s) {
    kernels.attend_split(tile, unit.first_split + s);
    kernels.merge(total, tile.part, unit.rows, padded_dim);
  }
  for (uint32_t r = 0; r < unit.rows; ++r) {
    finish_row(sequences[unit.sequence], unit.kv_head, unit.first_row + r, total, r, rows);
  }
}

void AttentionPlan::Impl::merge_rows(const AttentionMerge& merge, uint32_t row,
                                     const AttentionRows& rows, Workspace& space) {
  const AttentionSums total = space.total();
  clear(total, 1, padded_dim);
  for (uint32_t s = 0; s < merge.splits; ++s) {
    kernels.merge(total, partial_sums(merge.partial + s * merge.rows + row), 1, padded_dim);
  }
  finish_row(sequences[merge.sequence], merge.kv_head, merge.first_row + row, total, 0, rows);
}

void AttentionPlan::Impl::finish_row(const AttentionSequence& sequence, uint32_t kv_head,
                                     uint32_t row, const AttentionSums& sums, uint32_t index,
                                     const AttentionRows& rows) {
  float* out = rows.out + (sequence.first_row + row / group_heads) * rows.out_stride +
               head_column(kv_head, row);
  kernels.finish(out, sums.out + size_t{index} * padded_dim, sums.sum[index], layout.head_dim);
}

AttentionPlan::AttentionPlan(CpuLevel level, const KvGroupLayout& layout,
                             const AttentionShape& shape) {
  CHECK(layout.kv_heads > 0);
  CHECK(layout.head_dim > 0);
  CHECK(layout.head_dim <= kHeadDimMax);
  CHECK(layout.page_tokens % kKvBlockTokens == 0);
  CHECK(shape.heads > 0);
  CHECK(shape.heads % layout.kv_heads == 0);
  impl_ = std::make_unique<Impl>(level, layout, shape);
}

AttentionPlan::~AttentionPlan() = default;

void AttentionPlan::prepare(std::span<const AttentionSequence> sequences, uint32_t workers) {
  CHECK(workers > 0);
  Impl& plan = *impl_;
  plan.sequences.assign(sequences.begin(), sequences.end());
  for (AttentionSequence& sequence : plan.sequences) sequence.kv.layout = &plan.layout;
  plan.cut = cut_attention(plan.sequences, plan.group_heads, workers);
  plan.partial_max.grow(plan.cut.partial_rows);
  plan.partial_sum.grow(plan.cut.partial_rows);
  plan.partial_out.grow(size_t{plan.cut.partial_rows} * plan.padded_dim);
  plan.spaces.resize(workers);
  for (auto& space : plan.spaces) {
    if (!space) space = std::make_unique<Workspace>(plan.layout.head_dim, plan.padded_dim);
  }
}

void AttentionPlan::run(Team& team, uint32_t layer, const AttentionRows& rows) {
  Impl& plan = *impl_;
  CHECK(team.count() == plan.spaces.size());
  CHECK(layer < plan.layout.layers);
  Workspace& space = *plan.spaces[team.index()];
  const auto units = static_cast<uint32_t>(plan.cut.units.size());
  for (;;) {
    const uint32_t index = plan.next_unit.fetch_add(1, std::memory_order_relaxed);
    if (index >= units) break;
    plan.attend(plan.cut.units[index], layer, rows, space);
  }
  // The last one out resets the counters; the caller's barrier shows it to the others.
  if (plan.finished.fetch_add(1, std::memory_order_acq_rel) + 1 == team.count()) {
    plan.finished.store(0, std::memory_order_relaxed);
    plan.next_unit.store(0, std::memory_order_relaxed);
  }
  if (plan.cut.merges.empty()) return;
  team.barrier();
  uint32_t turn = 0;
  for (const AttentionMerge& merge : plan.cut.merges) {
    for (uint32_t row = 0; row < merge.rows; ++row) {
      if (turn++ % team.count() == team.index()) plan.merge_rows(merge, row, rows, space);
    }
  }
}

}  // namespace spillway::kernels
