// How a step's rows become queries and tiles for the attention of a GPU. A pure function of shapes,
// positions and pages: the cut decides who computes what, never what comes out (attention.cuh).
//
// A sequence with many rows (prefill) is cut into tiles of its own rows, whole where they fill the
// GPU, else by splits. Rows of sequences that begin with the same pages (decode over a shared
// prompt, parallel samples) attend to the splits that lie in those pages together, as tiles of
// all their queries; each goes on alone from where its pages part from the others'.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/operators.h"

namespace spillway::kernels::cuda {

// One sequence's part of a step.
struct TiledSequence {
  std::span<const PageId> pages;  // covers the last row; entries before a window may be kNoPage
  const PageId* table = nullptr;  // the same in device memory
  uint32_t position = 0;          // of the first row
  uint32_t rows = 0;
  uint32_t first_row = 0;  // in q and out
};

struct TileLimits {
  uint32_t blocks_wanted = 264;  // of threads, for prefill to stay whole: two for each SM
  // Splits of queries whose sums the scratch can take, before heads: prefill is cut by splits only
  // within it. What queries with splits of their own need is not limited here.
  uint64_t partials_max = 0;
};

// Goes into TiledAttentionArgs, field by field.
struct AttentionTilePlan {
  std::vector<DeviceQuery> queries;
  std::vector<DeviceTile> tiles;  // the most expensive first
  uint32_t tiled_queries = 0;
  uint32_t whole_queries = 0;
  uint32_t splits_max = 0;  // of the queries that are not whole
};

// Whether a sequence's rows, so many, become tiles of their own. A tile takes as long with one row
// as with all: half of them is about where it pays.
bool attends_in_tiles(const KvGroupLayout& layout, uint32_t heads, uint32_t rows);

// REQUIRES: heads is a multiple of layout.kv_heads.
AttentionTilePlan plan_attention_tiles(const KvGroupLayout& layout, uint32_t heads,
                                       std::span<const TiledSequence> sequences,
                                       const TileLimits& limits);

}  // namespace spillway::kernels::cuda
