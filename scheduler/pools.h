// How the memory for KV is shared out among layer groups, and how long a context it holds. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/paged_kv.h"
#include "runtime/result.h"
#include "scheduler/policy.h"

namespace spillway::scheduler {

struct PoolPlan {
  std::vector<uint32_t> pages;      // (group)
  uint32_t context_tokens_max = 0;  // the wanted context, or less where the pools hold less
  uint32_t step_tokens_max = 0;     // the wanted step, or less where its pages take too much
};

// A sequence holds a full-attention page per page_tokens tokens. Of a window it holds the window's
// pages, the same again kept for its next turn, and while it computes a step's rows behind the
// window those of the step; and each is admitted with room for a whole step. So:
//  - a step is halved while its rows and a window take more than an eighth of `bytes`, down to
//    kStepTokensMin rows, with which arithmetic is about as fast;
//  - the context is the longest that fits beside the windows of kUsersMin sequences, but not
//    shorter for their sake than kShortContext tokens;
//  - what is left goes to the groups in the proportion in which a sequence of kTypicalTokens
//    tokens that has computed its prompt holds them.
// Gemma 3 270M (3 KiB a token, and 15 in a window of 512) with 64 MiB: steps of 256, one user of
// 10,000 tokens beside three short ones. With 256 MiB: steps of 1,024, 32k tokens, and 110 of the
// 256 MiB in windows.
//
// Each group can hold one sequence of context_tokens_max. Fails when that would be fewer than
// kContextTokensMin tokens; the message says how many bytes would do.
Result<PoolPlan> plan_pools(const PolicyOptions& wanted,
                            const std::vector<kernels::KvGroupLayout>& groups, uint64_t bytes,
                            uint32_t context_tokens);

inline constexpr uint32_t kContextTokensMin = 64;
inline constexpr uint32_t kStepTokensMin = 256;
inline constexpr uint32_t kUsersMin = 4;
inline constexpr uint32_t kShortContext = 4096;
inline constexpr uint32_t kTypicalTokens = 4096;

}  // namespace spillway::scheduler
