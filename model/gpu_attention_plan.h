// How the rows of a step's tile attend in the layers of one group: by the plans of
// kernels/cuda/attention_tiles.h, one after the other where the scratch does not take the sums of
// all rows at once. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/attention_tiles.h"

namespace spillway::model {

// In the order of the sequences; rows that share a prefix do so within one plan. REQUIRES: the
// scratch takes any row alone (limits.partials_max is at least the splits that one sees).
std::vector<kernels::cuda::AttentionTilePlan> plan_attention(
    const kernels::KvGroupLayout& layout, uint32_t heads,
    std::span<const kernels::cuda::TiledSequence> sequences,
    const kernels::cuda::TileLimits& limits);

// That a row sees at most of a context of so many tokens.
uint32_t splits_seen_max(const kernels::KvGroupLayout& layout, uint32_t context_tokens);

// No more tiles than this come of plans for so many rows, none of them at or past the position
// `context_tokens`.
size_t attention_tiles_max(const kernels::KvGroupLayout& layout, uint32_t heads, size_t rows,
                           uint32_t context_tokens);

}  // namespace spillway::model
