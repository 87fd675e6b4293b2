#include "scheduler/pools.h"

#include <algorithm>
#include <string>

#include "runtime/check.h"

namespace spillway::scheduler {
namespace {

PolicyGroup policy_group(const kernels::KvGroupLayout& layout, uint32_t pages) {
  return {.page_tokens = layout.page_tokens,
          .window = layout.window,
          .pages_capacity = pages,
          .pages_available = pages};
}

// Pages of a window that a sequence between two steps sees.
uint32_t window_pages(const kernels::KvGroupLayout& layout, uint32_t tokens) {
  const uint32_t page_tokens = layout.page_tokens;
  const uint32_t all = (tokens + page_tokens - 1) / page_tokens;
  return std::min(all, (layout.window + page_tokens - 1) / page_tokens + 1);
}

// Bytes of the group that a typical sequence holds.
double typical_bytes(const kernels::KvGroupLayout& layout, uint32_t context_tokens) {
  const uint32_t tokens = std::min(context_tokens, kTypicalTokens);
  const uint32_t pages = layout.window == 0 ? (tokens + layout.page_tokens - 1) / layout.page_tokens
                                            : 2 * window_pages(layout, tokens);
  return static_cast<double>(pages) * static_cast<double>(layout.page_bytes());
}

// The windows of the other users that the pools should hold beside the longest.
uint64_t others_bytes(const std::vector<kernels::KvGroupLayout>& groups, uint32_t context_tokens) {
  uint64_t bytes = 0;
  for (const auto& layout : groups) {
    if (layout.window == 0) continue;
    bytes += uint64_t{kUsersMin - 1} * window_pages(layout, context_tokens) * layout.page_bytes();
  }
  return bytes;
}

// Rows of a step, so that one sequence's windows and the step behind them leave room.
uint32_t step_tokens_for(PolicyOptions options, const std::vector<kernels::KvGroupLayout>& groups,
                         uint64_t bytes, uint32_t context_tokens) {
  const auto windows_bytes = [&] {
    uint64_t sum = 0;
    for (const auto& layout : groups) {
      if (layout.window == 0) continue;
      sum += peak_pages(options, policy_group(layout, 0), context_tokens) * layout.page_bytes();
    }
    return sum;
  };
  const uint32_t least = std::max(kStepTokensMin, options.sequences_max);  // a row for each decode
  while (options.step_tokens_max / 2 >= least && windows_bytes() > bytes / 8) {
    options.step_tokens_max /= 2;
  }
  return options.step_tokens_max;
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

Result<PoolPlan> plan_pools(const PolicyOptions& wanted,
                            const std::vector<kernels::KvGroupLayout>& groups, uint64_t bytes,
                            uint32_t context_tokens) {
  CHECK(!groups.empty());
  CHECK(groups.size() <= kGroupsMax);
  PoolPlan plan;
  plan.step_tokens_max = step_tokens_for(wanted, groups, bytes, context_tokens);
  PolicyOptions options = wanted;
  options.step_tokens_max = plan.step_tokens_max;
  const uint64_t others = std::min(bytes, others_bytes(groups, context_tokens));
  const uint32_t alone = longest_context(options, groups, bytes, context_tokens);
  plan.context_tokens_max = std::max(std::min(alone, kShortContext),
                                     longest_context(options, groups, bytes - others, alone));
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
  // Each group gets what one longest sequence needs, windows what the others' need, and each its
  // share of the rest.
  const uint64_t longest = bytes_for(options, groups, plan.context_tokens_max);
  const uint64_t beside = std::min(bytes - longest, others_bytes(groups, plan.context_tokens_max));
  const uint64_t rest = bytes - longest - beside;
  const auto windows = std::count_if(groups.begin(), groups.end(),
                                     [](const auto& layout) { return layout.window > 0; });
  double typical_all = 0;
  for (const auto& layout : groups) {
    typical_all += typical_bytes(layout, plan.context_tokens_max);
  }
  for (const auto& layout : groups) {
    const double share = typical_bytes(layout, plan.context_tokens_max) / typical_all;
    auto extra = static_cast<uint64_t>(share * static_cast<double>(rest));
    if (layout.window > 0) extra += beside / static_cast<uint64_t>(windows);
    plan.pages.push_back(peak_pages(options, policy_group(layout, 0), plan.context_tokens_max) +
                         static_cast<uint32_t>(extra / layout.page_bytes()));
  }
  return plan;
}

}  // namespace spillway::scheduler
