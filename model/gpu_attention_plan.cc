#include "model/gpu_attention_plan.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace spillway::model {
namespace {

using kernels::KvGroupLayout;
using kernels::cuda::AttentionTilePlan;
using kernels::cuda::TiledSequence;
using kernels::cuda::TileLimits;

// Collects rows up to what the scratch takes. Rows that attend as tiles of their own sequence need
// none: the plan leaves them whole where there is no room.
class Passes {
 public:
  Passes(const KvGroupLayout& layout, uint32_t heads, const TileLimits& limits)
      : layout_(layout), heads_(heads), limits_(limits) {}

  void add(const TiledSequence& sequence) {
    if (kernels::cuda::attends_in_tiles(layout_, heads_, sequence.rows)) {
      sequences_.push_back(sequence);
      return;
    }
    uint32_t first = 0;  // of the rows that are in no pass yet
    for (uint32_t row = 0; row < sequence.rows; ++row) {
      const uint32_t splits = kernels::cuda::splits_seen(layout_, sequence.position + row);
      CHECK(splits <= limits_.partials_max);
      if ((rows_ + 1) * std::max(splits_max_, splits) > limits_.partials_max) {
        add_rows(sequence, first, row);
        first = row;
        finish_pass();
      }
      ++rows_;
      splits_max_ = std::max(splits_max_, splits);
    }
    add_rows(sequence, first, sequence.rows);
  }

  std::vector<AttentionTilePlan> finish() {
    finish_pass();
    return std::move(plans_);
  }

 private:
  void add_rows(const TiledSequence& sequence, uint32_t first, uint32_t end) {
    if (first == end) return;
    TiledSequence part = sequence;
    part.position += first;
    part.first_row += first;
    part.rows = end - first;
    sequences_.push_back(part);
  }

  void finish_pass() {
    if (!sequences_.empty()) {
      plans_.push_back(kernels::cuda::plan_attention_tiles(layout_, heads_, sequences_, limits_));
    }
    sequences_.clear();
    rows_ = 0;
    splits_max_ = 0;
  }

  const KvGroupLayout& layout_;
  const uint32_t heads_;
  const TileLimits& limits_;
  std::vector<AttentionTilePlan> plans_;
  std::vector<TiledSequence> sequences_;  // of the pass
  uint64_t rows_ = 0;                     // of these, those with splits of their own
  uint32_t splits_max_ = 0;               // that one of those sees
};

}  // namespace

std::vector<AttentionTilePlan> plan_attention(const KvGroupLayout& layout, uint32_t heads,
                                              std::span<const TiledSequence> sequences,
                                              const TileLimits& limits) {
  Passes passes(layout, heads, limits);
  for (const TiledSequence& sequence : sequences) passes.add(sequence);
  return passes.finish();
}

uint32_t splits_seen_max(const KvGroupLayout& layout, uint32_t context_tokens) {
  constexpr uint32_t kTokens = kernels::kAttentionSplitTokens;
  const uint32_t of_context = (std::max(context_tokens, 1u) - 1) / kTokens + 1;
  if (layout.window == 0) return of_context;
  // The first token of a window may be a split's last.
  return std::min(of_context, (layout.window + kTokens - 2) / kTokens + 1);
}

// Rows become tiles only where there are at least half as many as a tile takes, and are dealt out
// evenly: so tiles are half full at least, in each of the splits that they see.
size_t attention_tiles_max(const KvGroupLayout& layout, uint32_t heads, size_t rows,
                           uint32_t context_tokens) {
  if (!kernels::cuda::tiles_take(layout)) return 0;
  const uint32_t seen =
      layout.window == 0 ? context_tokens : std::min(context_tokens, layout.window);
  const size_t splits = seen / kernels::kAttentionSplitTokens + 2;
  const uint32_t queries = kernels::cuda::tile_queries(layout, heads);
  // The tokens that any row of a tile sees reach over one split more than those of one row.
  return (2 * rows + queries - 1) / queries * (splits + 1);
}

}  // namespace spillway::model
