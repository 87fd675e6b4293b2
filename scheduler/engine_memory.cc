#include "scheduler/engine_memory.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/page_codec.h"
#include "scheduler/device_pools.h"

namespace spillway::scheduler {
namespace {

using Layouts = std::vector<kernels::KvGroupLayout>;

// Buffers for what is written to NVMe: two batches, and a page at least.
constexpr size_t kStagingBytes = size_t{8} << 20;
constexpr size_t kFewBuffersBytes = size_t{1} << 20;
constexpr size_t kHostBuffers = 4;  // in each direction: enough that no worker waits for one

size_t bytes_of_pools(const PoolPlan& pools, const Layouts& layouts) {
  size_t bytes = 0;
  for (size_t g = 0; g < layouts.size(); ++g) bytes += pools.pages[g] * layouts[g].page_bytes();
  return bytes;
}

size_t largest_page(const Layouts& layouts) {
  size_t bytes = 0;
  for (const auto& layout : layouts) bytes = std::max(bytes, layout.page_bytes());
  return bytes;
}

}  // namespace

Result<std::string> EngineMemory::make_tier_memory(kernels::Device& device,
                                                   const EngineOptions& options,
                                                   const PoolPlan& pools, const Layouts& layouts,
                                                   cache::TiersOptions& tiers) {
  auto line = make_host_pools(device, options, pools, layouts, tiers);
  if (!line) return line;
  const Result<> made = make_buffers(device, options, largest_page(layouts), tiers);
  if (!made) return made.error();
  return line;
}

// As many host pages of each group as their share of the device's.
Result<std::string> EngineMemory::make_host_pools(kernels::Device& device,
                                                  const EngineOptions& options,
                                                  const PoolPlan& pools, const Layouts& layouts,
                                                  cache::TiersOptions& tiers) {
  if (!wants_host(options)) return std::string();
  const double share = static_cast<double>(options.kv_host_bytes) /
                       static_cast<double>(bytes_of_pools(pools, layouts));
  std::string pages;
  for (size_t g = 0; g < layouts.size(); ++g) {
    const auto count = static_cast<uint32_t>(static_cast<double>(pools.pages[g]) * share);
    if (count == 0) {
      return invalid_argument("--kv-host-size is too small: it must hold a page of " +
                              std::to_string(layouts[g].page_bytes() >> 10) + " KiB");
    }
    auto allocated = device.allocate_host(count * layouts[g].page_bytes());
    if (!allocated) {
      return Error{allocated.error().code, "the host tier: " + allocated.error().message +
                                               " (--kv-host-size says how much it is)"};
    }
    tiers.host.push_back({allocated->data, count});
    // Of encoded pages the disk sees copies.
    if (!wants_encoded_host(options)) {
      disk_pools_.push_back({{allocated->data, allocated->bytes}, layouts[g].page_bytes()});
    }
    blocks_.push_back(*std::move(allocated));
    pages += (g == 0 ? "" : " and ") + std::to_string(count);
  }
  std::string line =
      "host     " + std::to_string(options.kv_host_bytes >> 20) + " MiB, " + pages + " pages";
  if (wants_encoded_host(options)) {
    line += " as they are, and more of them with codec " +
            std::string(page_codec_name(options.kv_host_codec));
  }
  return line;
}

// Pages on NVMe that an earlier setting encoded are read with a few buffers, also where none is
// written.
Result<> EngineMemory::make_buffers(kernels::Device& device, const EngineOptions& options,
                                    size_t page_bytes, cache::TiersOptions& tiers) {
  const bool nvme = wants_nvme(options), encoded_host = wants_encoded_host(options);
  const bool encodes = options.kv_nvme_codec != kernels::PageCodec::kIdentity;
  struct Wanted {
    bool any;
    size_t bytes;
    std::span<std::byte>& buffers;
  };
  const Wanted all[] = {
      {(nvme || encoded_host) && !device.host_reaches_memory(), kStagingBytes, tiers.landing},
      {nvme || encoded_host, kStagingBytes, tiers.staging},
      {nvme && (encodes || encoded_host), kStagingBytes, tiers.encode_buffers},
      {nvme, encodes ? kStagingBytes : kFewBuffersBytes, tiers.decode_buffers},
      {encoded_host, kHostBuffers * page_bytes, tiers.host_encode_buffers},
      {encoded_host, kHostBuffers * page_bytes, tiers.host_decode_buffers},
  };
  for (const Wanted& wanted : all) {
    if (!wanted.any) continue;
    const size_t bytes = std::max(wanted.bytes / page_bytes, size_t{1}) * page_bytes;
    auto allocated = device.allocate_host(bytes);
    if (!allocated) return allocated.error();
    wanted.buffers = {allocated->data, bytes};
    disk_pools_.push_back({wanted.buffers, page_bytes});
    blocks_.push_back(*std::move(allocated));
  }
  return {};
}

Result<> EngineMemory::register_with(io::Ring& ring) const {
  for (const DiskPool& pool : disk_pools_) {
    const Result<> done = register_pages(ring, pool.bytes, pool.page_bytes);
    if (!done) return done;
  }
  return {};
}

}  // namespace spillway::scheduler
