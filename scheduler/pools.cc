#include "scheduler/pools.h"

#include <algorithm>
#include <string>

#include "runtime/check.h"

namespace spillway::scheduler {
namespace {

constexpr uint32_t kTypicalTokens = 2048;

PolicyGroup policy_group(const kernels::KvGroupLayout& layout, uint32_t pages) {
  return {.page_tokens = layout.page_tokens,
          .window = layout.window,
          .pages_capacity = pages,
          .pages_available = pages};
}

// Bytes of the group that a typical sequence asks for.
double typical_bytes(const PolicyOptions& options, const kernels::KvGroupLayout& layout,
                     uint32_t context_tokens) {
  const uint32_t tokens = std::min(context_tokens, kTypicalTokens);
  const uint32_t pages = peak_pages(options, policy_group(layout, 0), tokens);
  const uint32_t share = layout.window == 0 ? 1 : 2;
  return static_cast<double>(share) * pages * static_cast<double>(layout.page_bytes());
}

// Bytes with which one sequence of `tokens` tokens runs.
uint64_t bytes_for(const PolicyOptions& options, const std::vector<kernels::KvGroupLayout>& groups,
                   uint32_t tokens) {
  uint64_t bytes = 0;
  for (const auto& layout : groups) {
    bytes += peak_pages(options, policy_group(layout, 0), tokens) * layout.page_bytes();
  }
  return bytes;
}

// Most tokens up to `wanted` that one sequence may grow to within `bytes`.
uint32_t longest_context(const PolicyOptions& options,
                         const std::vector<kernels::KvGroupLayout>& groups, uint64_t bytes,
                         uint32_t wanted) {
  uint32_t low = 0, high = wanted;
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    if (bytes_for(options, groups, middle) <= bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

Result<PoolPlan> plan_pools(const PolicyOptions& options,
                            const std::vector<kernels::KvGroupLayout>& groups, uint64_t bytes,
                            uint32_t context_tokens) {
  CHECK(!groups.empty());
  CHECK(groups.size() <= kGroupsMax);
  PoolPlan plan;
  plan.context_tokens_max = longest_context(options, groups, bytes, context_tokens);
  if (plan.context_tokens_max < std::min(kContextTokensMin, context_tokens)) {
    const uint32_t least = std::min(kContextTokensMin, context_tokens);
    return Error{ErrorCode::kInvalidArgument,
                 "the KV pool of " + std::to_string(bytes) + " bytes cannot hold a sequence of " +
                     std::to_string(least) + " tokens; give it at least " +
                     std::to_string(bytes_for(options, groups, least)) +
                     " bytes (--kv-device-size), " +
                     std::to_string(bytes_for(options, groups, context_tokens)) +
                     " for the model's whole context"};
  }
  // Each group gets what one longest sequence needs, and its share of the rest.
  const uint64_t rest = bytes - bytes_for(options, groups, plan.context_tokens_max);
  double typical_all = 0;
  for (const auto& layout : groups) {
    typical_all += typical_bytes(options, layout, plan.context_tokens_max);
  }
  for (const auto& layout : groups) {
    const double share = typical_bytes(options, layout, plan.context_tokens_max) / typical_all;
    const auto extra = static_cast<uint64_t>(share * static_cast<double>(rest));
    plan.pages.push_back(peak_pages(options, policy_group(layout, 0), plan.context_tokens_max) +
                         static_cast<uint32_t>(extra / layout.page_bytes()));
  }
  return plan;
}

}  // namespace spillway::scheduler
