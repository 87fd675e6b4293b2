#include "scheduler/break_even.h"

#include <algorithm>

#include "model/inspect.h"
#include "runtime/check.h"

namespace spillway::scheduler {

double load_seconds(const LoadSpeed& speed, std::span<const kernels::KvGroupLayout> groups,
                    uint32_t tokens) {
  CHECK(speed.bytes_per_s.size() == groups.size());
  double seconds = speed.latency_s;
  for (size_t g = 0; g < groups.size(); ++g) {
    const uint64_t bytes = model::kv_bytes_of_sequence(groups.subspan(g, 1), tokens);
    seconds += static_cast<double>(bytes) / speed.bytes_per_s[g];
  }
  return seconds;
}

double compute_seconds(const cache::ComputeRate& compute, uint32_t tokens) {
  constexpr uint32_t kPiece = 16;
  double seconds = 0;
  for (uint32_t at = 0; at < tokens; at += kPiece) {
    seconds += compute.seconds_per_token(at) * std::min(kPiece, tokens - at);
  }
  return seconds;
}

uint32_t break_even_tokens(const LoadSpeed& speed, std::span<const kernels::KvGroupLayout> groups,
                           const cache::ComputeRate& compute, uint32_t context_tokens) {
  CHECK(!groups.empty());
  const uint32_t page_tokens = groups.front().page_tokens;
  double computed_s = 0;
  uint32_t least = 0;
  for (uint32_t tokens = page_tokens; tokens <= context_tokens; tokens += page_tokens) {
    computed_s += compute.seconds_per_token(tokens - page_tokens) * page_tokens;
    if (load_seconds(speed, groups, tokens) >= computed_s) {
      least = 0;
    } else if (least == 0) {
      least = tokens;
    }
  }
  return least;
}

TierSizes recommend_sizes(const MachineSizes& machine) {
  constexpr uint64_t kReserveMin = uint64_t{512} << 20;
  constexpr uint64_t kMemoryStep = uint64_t{64} << 20;
  constexpr uint64_t kDiskStep = uint64_t{1} << 30;
  const auto share = [](uint64_t bytes, uint64_t step) { return bytes / 4 * 3 / step * step; };
  const uint64_t taken =
      machine.weight_bytes + std::max(kReserveMin, machine.memory_free_bytes / 8);
  TierSizes sizes;
  if (machine.memory_free_bytes > taken) {
    sizes.device_bytes = share(machine.memory_free_bytes - taken, kMemoryStep);
  }
  if (machine.nvme_wins) sizes.nvme_bytes = share(machine.disk_free_bytes, kDiskStep);
  return sizes;
}

}  // namespace spillway::scheduler
