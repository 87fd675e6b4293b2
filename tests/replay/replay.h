// Replays a trace through the real prefix tree and a real eviction policy, with tiers below that
// hold what the device evicts, and says what was found where and how long first tokens would take
// on a machine of the given rates.
//
// A block of the trace is one page: its KvCache has pages of 16 tokens that no memory is written
// to, and a block's tokens are made from its number.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/eviction_policy.h"
#include "trace.h"

namespace spillway::replay {

// A model of 8 billion parameters in f16 with 8 of 32 heads' KV, on one big accelerator.
struct Costs {
  double tokens_per_second = 8000;     // of prefill at the prompt's front
  double double_cost_tokens = 28'000;  // where attention takes as long as all else
  double bytes_per_token = 128 * 1024;
  double host_bytes_per_second = 25e9, nvme_bytes_per_second = 6e9;
  double nvme_seconds = 100e-6;  // until the first byte
};

struct ReplayOptions {
  // Nothing: the optimum that knows the future (Belady's, on leaves).
  std::optional<cache::EvictionPolicyKind> policy = cache::EvictionPolicyKind::kValue;
  uint32_t device_blocks = 3000, host_blocks = 0, nvme_blocks = 0;
  Costs costs = {};
};

struct ReplayResult {
  uint64_t blocks = 0;                      // asked for
  uint64_t device = 0, host = 0, nvme = 0;  // found there, as part of the prefix
  double compute_seconds = 0;               // of all prompts, with what was found
  double compute_seconds_cold = 0;          // without a cache
  std::vector<double> first_token_seconds;  // of each request, sorted

  double share(uint64_t found) const {
    return blocks == 0 ? 0 : static_cast<double>(found) / static_cast<double>(blocks);
  }
  double hit_share() const { return share(device + host + nvme); }
  double first_token(double quantile) const;
};

ReplayResult replay(const Trace& trace, const ReplayOptions& options);

}  // namespace spillway::replay
