// Where loading a prefix beats computing it, and which tier sizes suit a machine: what
// `spillway doctor` concludes from what it measured. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/tier_rates.h"
#include "kernels/paged_kv.h"

namespace spillway::scheduler {

struct LoadSpeed {
  double latency_s = 0;             // before the first byte, whatever the length
  std::vector<double> bytes_per_s;  // (group): at the group's page size
};

// Of the pages that a prefix of `tokens` tokens needs: behind a window, none.
double load_seconds(const LoadSpeed& speed, std::span<const kernels::KvGroupLayout> groups,
                    uint32_t tokens);
// Prefill of `tokens` tokens from position 0, alone on an idle engine.
double compute_seconds(const cache::ComputeRate& compute, uint32_t tokens);

// The least whole number of pages, in tokens, from which on loading takes less time than computing,
// up to a context of `context_tokens`; 0: at its end loading is still slower.
uint32_t break_even_tokens(const LoadSpeed& speed, std::span<const kernels::KvGroupLayout> groups,
                           const cache::ComputeRate& compute, uint32_t context_tokens);

struct MachineSizes {
  uint64_t memory_free_bytes = 0;  // before the model is loaded
  uint64_t weight_bytes = 0;
  uint64_t disk_free_bytes = 0;
  bool nvme_wins = false;  // loading from the disk beats computing at some length
};

struct TierSizes {
  uint64_t device_bytes = 0;  // 0: the weights leave no room for KV
  uint64_t nvme_bytes = 0;    // 0: better none
};

// Three quarters of what is free, in memory after the weights and a reserve for all else. There is
// no host tier in it: on a device whose memory is the machine's, that would copy memory to memory.
TierSizes recommend_sizes(const MachineSizes& machine);

}  // namespace spillway::scheduler
