// How a step's attention is cut into units of work. Pure functions of shapes and positions: the cut
// decides who computes what and when, never what comes out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace spillway::kernels {

// Rows of one sequence and kv head, numbered position by position and in each the heads of the
// group, over a range of absolute splits.
struct AttentionUnit {
  uint32_t sequence = 0;
  uint32_t kv_head = 0;
  uint32_t first_row = 0;
  uint32_t rows = 0;  // at most kTileRows
  uint32_t first_split = 0;
  uint32_t splits = 0;
  uint64_t cost = 0;  // about proportional to time
  // Where the sums of its first split go, in rows of the plan's partial memory; kWhole: the unit
  // covers all the splits of its rows and needs none.
  uint32_t partial = kWhole;

  static constexpr uint32_t kWhole = 0xffffffff;
};

// Rows whose splits went to several units, to be merged in ascending order.
struct AttentionMerge {
  uint32_t sequence = 0;
  uint32_t kv_head = 0;
  uint32_t first_row = 0;
  uint32_t rows = 0;
  uint32_t splits = 0;
  uint32_t partial = 0;  // of the first split; the others follow, `rows` rows each
};

struct AttentionCut {
  std::vector<AttentionUnit> units;  // the most expensive first
  std::vector<AttentionMerge> merges;
  uint32_t partial_rows = 0;
};

// The first token that a query at `position` sees.
inline uint32_t first_seen(const KvGroupLayout& layout, uint32_t position) {
  return layout.window != 0 && position >= layout.window ? position - layout.window + 1 : 0;
}

// Units are whole where each worker gets several anyhow; a unit that would keep the others waiting
// is cut at splits.
AttentionCut cut_attention(std::span<const AttentionSequence> sequences, uint32_t group_heads,
                           uint32_t workers);

}  // namespace spillway::kernels
