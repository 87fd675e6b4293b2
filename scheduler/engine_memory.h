// The memory that an engine takes for pages outside the device's pools (device_pools.h): the host
// tier's, and the buffers of what moves between tiers and disk. All of it is the host's, pinned
// where the device has memory of its own, and outlives the device.
//
// Owner: Engine. Not in a step: a device may wait for its streams when it allocates.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/tiers.h"
#include "io/ring.h"
#include "kernels/device.h"
#include "kernels/paged_kv.h"
#include "runtime/result.h"
#include "scheduler/engine.h"
#include "scheduler/pools.h"

namespace spillway::scheduler {

// The tiers that `options` asks for.
inline bool wants_nvme(const EngineOptions& options) {
  return !options.kv_nvme_dir.empty() && options.prefix_caching;
}
inline bool wants_host(const EngineOptions& options) {
  return options.kv_host_bytes > 0 && options.prefix_caching;
}
inline bool wants_encoded_host(const EngineOptions& options) {
  return wants_host(options) && options.kv_host_codec != kernels::PageCodec::kIdentity;
}

class EngineMemory {
 public:
  // Host pools and buffers, into `tiers`; after the device's pools. A line about the host tier, for
  // a person: empty where there is none. Errors name the flag to change.
  Result<std::string> make_tier_memory(kernels::Device& device, const EngineOptions& options,
                                       const PoolPlan& pools,
                                       const std::vector<kernels::KvGroupLayout>& layouts,
                                       cache::TiersOptions& tiers);
  // What the disk reads and writes, in pieces of whole pages of at most 1 GiB. A refusal costs
  // speed only.
  Result<> register_with(io::Ring& ring) const;

 private:
  struct DiskPool {  // pages in a part of one of the blocks
    std::span<std::byte> bytes;
    size_t page_bytes = 0;
  };

  Result<std::string> make_host_pools(kernels::Device& device, const EngineOptions& options,
                                      const PoolPlan& pools,
                                      const std::vector<kernels::KvGroupLayout>& layouts,
                                      cache::TiersOptions& tiers);
  Result<> make_buffers(kernels::Device& device, const EngineOptions& options, size_t page_bytes,
                        cache::TiersOptions& tiers);

  std::vector<kernels::DeviceMemory> blocks_;
  std::vector<DiskPool> disk_pools_;
};

}  // namespace spillway::scheduler
