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
};

// Shares `bytes` out in the proportion in which sequences of a typical length need the groups: a
// full-attention page per page_tokens tokens; for a window twice its length (running, and kept for
// the next turn). Each group can hold one sequence of context_tokens_max. Fails when that would be
// fewer than `kContextTokensMin` tokens; the message says how many bytes would do.
Result<PoolPlan> plan_pools(const PolicyOptions& options,
                            const std::vector<kernels::KvGroupLayout>& groups, uint64_t bytes,
                            uint32_t context_tokens);

inline constexpr uint32_t kContextTokensMin = 64;

}  // namespace spillway::scheduler
