// Writing K and V into pages, and paged attention over them: MHA, GQA and MQA, full or windowed,
// for a batch of sequences of one row (decode) or many (prefill) each.
//
// The same bits. A row's result depends on its absolute position, its q, and the K and V it sees;
// not on the other rows or sequences, chunk edges, pages, workers, nor on the level from kAvx2 up
// (kBaseline has no FMA). One order of arithmetic, in f32, whatever the number of rows:
//   - q is multiplied by scale * log2(e) once; a score is the fused sum over dims, ascending.
//     (Soft cap c: q by 2 log2(e) scale / c, then score = c log2(e) tanh(...) via exp2.)
//   - Tokens go in absolute blocks of 64 inside absolute splits of 512. Per block: where its
//   greatest
//     score is above the reference m by more than 8, m becomes that score, and sums and output are
//     multiplied by 2^(old m - m); then p = 2^(score - m), so at most 2^8. out[dim] is the
//     fused sum over tokens, ascending; the sum of p is kept in 16 lanes, lane = token % 16, as
//     l = l * factor + ((p[lane] + p[lane+16]) + (p[lane+32] + p[lane+48])), folded in halves
//     (8, 4, 2, 1) at the end of a split.
//   - A split starts from nothing. Splits are merged in ascending order.
//   - What a row does not see (the future, behind its window) has p = 0: leaving it out changes
//     nothing, so it is left out wherever a whole stretch is unseen, and is never read there.
// attention_reference.h is the same, row by row, in plain code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/attention_shape.h"
#include "kernels/cpu_level.h"
#include "kernels/device.h"
#include "kernels/paged_kv.h"

namespace spillway::kernels {

// One sequence's part of a step: `rows` new tokens at absolute positions `position`, ...
// kv.table covers the last of them. All sequences of one call share one layout.
struct AttentionSequence {
  PagedKv kv;
  uint32_t position = 0;
  uint32_t rows = 0;
  uint32_t first_row = 0;  // of its rows in q, k, v and out; they are consecutive
};

struct KvRows {
  const float* k = nullptr;  // (row, kv_head, head_dim), rows `stride` floats apart
  const float* v = nullptr;  // the same
  size_t stride = 0;
};

// Stores K and V of `layer` (its index in the group) of all rows into the sequences' pages. When a
// row is the first of its page, what follows in the page's layer is zeroed up to its end. F16
// saturates at +-65504; both 16-bit types round to nearest even. The bytes written are the same at
// every level. Called by every worker of the team; a barrier must follow before attention.
void write_kv(CpuLevel level, const Team& team, std::span<const AttentionSequence> sequences,
              uint32_t layer, const KvRows& rows);

struct AttentionRows {
  const float* q = nullptr;  // (row, head, head_dim), rows q_stride floats apart
  float* out = nullptr;      // the same shape, rows out_stride floats apart
  size_t q_stride = 0;
  size_t out_stride = 0;
};

// How the attention of one step is cut into work for the team, with its scratch memory. One per
// layer group, reused from step to step; made once a step, run once for each layer of the group.
class AttentionPlan {
 public:
  // REQUIRES: this machine has `level`; head_dim <= 1024.
  AttentionPlan(CpuLevel level, const KvGroupLayout& layout, const AttentionShape& shape);
  ~AttentionPlan();
  AttentionPlan(const AttentionPlan&) = delete;
  AttentionPlan& operator=(const AttentionPlan&) = delete;

  // Plans a step for `workers` workers. By one thread, with no run() under way. The sequences are
  // copied; their tables must stay until the last run().
  void prepare(std::span<const AttentionSequence> sequences, uint32_t workers);

  // Computes out for all rows from pages that write_kv has filled. Called by every worker of a team
  // of `workers`. The caller's next barrier ends it: no worker may call run() again before.
  // REQUIRES: every entry of a table that a row sees names a page.
  void run(Team& team, uint32_t layer, const AttentionRows& rows);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::kernels
