// What differs by CPU level in writing KV and in attention: one table of functions each, and the
// memory they share with the plan (attention.cc), which cuts the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_scaling.h"

namespace spillway::kernels {

inline constexpr uint32_t kRowGroup = 6;    // rows whose accumulators fit the registers together
inline constexpr uint32_t kTileRows = 192;  // rows that share one pass over the pages
inline constexpr float kNothingSeen = std::numeric_limits<float>::lowest();  // maximum of no score
inline constexpr float kUnseen = -std::numeric_limits<float>::infinity();    // a masked score

// What rows have summed, over one split or over all so far: memory of (rows) times the shapes.
struct AttentionSums {
  float* max = nullptr;  // ()
  float* sum = nullptr;  // ()
  float* out = nullptr;  // (padded_dim)
};

// The rows of one tile, (position, head of the group), and one worker's memory for them.
struct AttentionTile {
  const KvGroupLayout* layout = nullptr;
  const PagedKv* kv = nullptr;
  AttentionScaling scaling;
  uint32_t layer = 0;
  uint32_t kv_head = 0;
  uint32_t rows = 0;
  uint32_t padded_dim = 0;          // head_dim in whole vectors of 16
  const uint32_t* first = nullptr;  // (row) the first token it sees, ascending
  const uint32_t* end = nullptr;    // (row) one past the last, ascending
  float* q = nullptr;               // (row group, head_dim, kRowGroup), times scaling.query
  float* keys = nullptr;            // (head_dim, 64): one block's K in f32
  float* values = nullptr;          // (64, padded_dim): its V
  float* scores = nullptr;          // (kRowGroup, 64)
  float* lanes = nullptr;           // (row, 16): sums of p
  AttentionSums part;               // the split under way
};

struct AttentionKernels {
  // `to` = the n elements of `from` in the 16-bit type; F16 saturates at +-65504.
  void (*narrow)(uint16_t* to, const float* from, size_t n, KvType type);
  void (*scale_query)(float* to, const float* from, float factor, uint32_t dims);
  // Computes tile.part over the split of this index.
  void (*attend_split)(const AttentionTile& tile, uint32_t split);
  // Merges the sums of one more split into those of all before it, for `rows` rows.
  void (*merge)(const AttentionSums& total, const AttentionSums& part, uint32_t rows,
                uint32_t padded_dim);
  // out[0 .. dims) of one row from its merged sums.
  void (*finish)(float* out, const float* sums, float sum, uint32_t dims);
};

const AttentionKernels& attention_kernels_baseline();
const AttentionKernels& attention_kernels_avx2();
const AttentionKernels& attention_kernels_avx512();
const AttentionKernels& attention_kernels(CpuLevel level);

// K of an absolute block of 16 tokens in its page; V follows at + block_bytes().
// REQUIRES: the table names its page.
std::byte* kv_block_address(const PagedKv& kv, uint32_t layer, uint32_t kv_head, uint32_t block);

}  // namespace spillway::kernels
