#include "kernels/attention_plan.h"

#include <algorithm>
#include <tuple>

#include "kernels/attention_levels.h"

namespace spillway::kernels {
namespace {

constexpr uint32_t kUnitsPerWorker = 4;  // so that the last unit to end is a small part of all
constexpr uint64_t kWideningRows = 3;    // widening K and V costs about as much as so many rows

struct SplitRange {
  uint32_t first = 0;
  uint32_t count = 0;
};

SplitRange splits_of(const KvGroupLayout& layout, uint32_t first_position, uint32_t last_position) {
  const uint32_t first = first_seen(layout, first_position) / kAttentionSplitTokens;
  return {first, last_position / kAttentionSplitTokens - first + 1};
}

class Cutter {
 public:
  Cutter(std::span<const AttentionSequence> sequences, uint32_t group_heads)
      : sequences_(sequences), group_heads_(group_heads) {}

  void add_units(uint32_t index) {
    const AttentionSequence& sequence = sequences_[index];
    const KvGroupLayout& layout = *sequence.kv.layout;
    const uint32_t rows = sequence.rows * group_heads_;
    for (uint32_t first = 0; first < rows; first += kTileRows) {
      const uint32_t count = std::min(kTileRows, rows - first);
      const uint32_t first_position = sequence.position + first / group_heads_;
      const uint32_t last_position = sequence.position + (first + count - 1) / group_heads_;
      const SplitRange splits = splits_of(layout, first_position, last_position);
      const uint64_t tokens = last_position + 1 - first_seen(layout, first_position);
      for (uint32_t head = 0; head < layout.kv_heads; ++head) {
        cut_.units.push_back({.sequence = index,
                              .kv_head = head,
                              .first_row = first,
                              .rows = count,
                              .first_split = splits.first,
                              .splits = splits.count,
                              .cost = tokens * (count + kWideningRows)});
      }
    }
  }

  AttentionCut finish(uint32_t workers) {
    if (workers > 1) cut_at_splits(workers);
    std::sort(cut_.units.begin(), cut_.units.end(), [](const auto& a, const auto& b) {
      if (a.cost != b.cost) return a.cost > b.cost;
      return std::tie(a.sequence, a.kv_head, a.first_row, a.first_split) <
             std::tie(b.sequence, b.kv_head, b.first_row, b.first_split);
    });
    return std::move(cut_);
  }

 private:
  void cut_at_splits(uint32_t workers) {
    uint64_t total = 0;
    for (const AttentionUnit& unit : cut_.units) total += unit.cost;
    const uint64_t fair = total / (uint64_t{workers} * kUnitsPerWorker) + 1;
    std::vector<AttentionUnit> whole;
    whole.swap(cut_.units);
    for (const AttentionUnit& unit : whole) {
      const uint64_t wanted = std::min<uint64_t>((unit.cost + fair - 1) / fair, unit.splits);
      if (wanted > 1) {
        cut_unit(unit, static_cast<uint32_t>(wanted));
      } else {
        cut_.units.push_back(unit);
      }
    }
  }

  void cut_unit(const AttentionUnit& unit, uint32_t pieces) {
    cut_.merges.push_back({.sequence = unit.sequence,
                           .kv_head = unit.kv_head,
                           .first_row = unit.first_row,
                           .rows = unit.rows,
                           .splits = unit.splits,
                           .partial = cut_.partial_rows});
    for (uint32_t piece = 0; piece < pieces; ++piece) {
      const uint32_t first = unit.splits * piece / pieces;
      const uint32_t end = unit.splits * (piece + 1) / pieces;
      AttentionUnit part = unit;
      part.first_split = unit.first_split + first;
      part.splits = end - first;
      part.cost = unit.cost * part.splits / unit.splits;
      part.partial = cut_.partial_rows + first * unit.rows;
      cut_.units.push_back(part);
    }
    cut_.partial_rows += unit.splits * unit.rows;
  }

  std::span<const AttentionSequence> sequences_;
  uint32_t group_heads_;
  AttentionCut cut_;
};

}  // namespace

AttentionCut cut_attention(std::span<const AttentionSequence> sequences, uint32_t group_heads,
                           uint32_t workers) {
  Cutter cutter(sequences, group_heads);
  for (uint32_t index = 0; index < sequences.size(); ++index) cutter.add_units(index);
  return cutter.finish(workers);
}

}  // namespace spillway::kernels
