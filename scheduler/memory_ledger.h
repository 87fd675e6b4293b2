// The memory that a model's users take, and which of them each tier holds: `spillway plan`. It asks
// the functions that share out the real pools (pools.h, io/store_geometry.h). Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/page_codec.h"
#include "kernels/paged_kv.h"
#include "runtime/result.h"
#include "scheduler/policy.h"

namespace spillway::scheduler {

struct LedgerQuestion {
  std::vector<kernels::KvGroupLayout> groups;  // one or two, all with the same page_tokens
  uint32_t context_tokens = 0;                 // of each user; at least 1
  uint64_t users = 0;
  uint64_t device_bytes = 0, host_bytes = 0, nvme_bytes = 0;  // for KV; 0: no such tier
  // With one of its own, host memory's figures are estimates (kernels::likely_bytes()).
  kernels::PageCodec host_codec = kernels::PageCodec::kIdentity;
  PolicyOptions policy{};
};

struct LedgerGroup {
  uint64_t token_bytes = 0;  // of each token that the group keeps
  uint64_t user_tokens = 0;  // that it keeps of the context, whole pages
  uint64_t user_bytes = 0;
  uint64_t device_bytes = 0;  // of the device's pools; 0: they cannot hold any useful context
};

struct LedgerTier {
  uint64_t users_max = 0;  // whole contexts that it has room for
  uint64_t users = 0;      // of those asked for, after the tiers above are full
  uint64_t used_bytes = 0;
};

struct Ledger {
  std::vector<LedgerGroup> groups;
  uint64_t token_bytes = 0;      // that a token adds while no window is full
  uint64_t far_token_bytes = 0;  // that one adds once all windows are full
  uint64_t user_bytes = 0;       // a context of context_tokens
  uint64_t host_user_bytes = 0;  // the same in host memory
  uint64_t all_bytes = 0;        // of all users, as on the device
  LedgerTier device, host, nvme;
  uint64_t users_left_out = 0;  // no tier has room: their prefixes are computed anew
};

// A user counts in one tier only: pages that lie in two at once take that much more. On the device
// one user at a time may be in prefill, when a window group holds the step's tokens as well.
// kInvalidArgument: more bytes than numbers hold, or than a tier can have.
Result<Ledger> make_ledger(const LedgerQuestion& question);

}  // namespace spillway::scheduler
