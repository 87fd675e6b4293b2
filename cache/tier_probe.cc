// A disk that fails is set aside, and tried again after a pause (Breaker in tier_rates.h).
#include <algorithm>
#include <chrono>
#include <utility>

#include "cache/tiers.h"

namespace spillway::cache {
namespace {

constexpr std::chrono::seconds kProbePause(2);  // at least, between two probes

}  // namespace

// What a read tells of the disk. A page that does not verify says nothing about the others.
void Tiers::judge_read(const Result<>& read) {
  if (read) return read_breaker_.succeeded();
  const ErrorCode code = read.error().code;
  if (code == ErrorCode::kCancelled) return read_breaker_.undecided();
  ++nvme_.errors;
  if (code == ErrorCode::kCorrupt) ++nvme_.corrupt;
  if (code == ErrorCode::kCorrupt || code == ErrorCode::kNotFound) return read_breaker_.undecided();
  read_breaker_.failed(parts_.loop.clock().now(), code == ErrorCode::kDeadlineExceeded);
  if (read_breaker_.open() && !std::exchange(probing_reads_, true)) scope_.spawn(probe_reads());
}

// While reads are set aside: after each pause one page is read into a buffer of our own.
Task<> Tiers::probe_reads() {
  const uint64_t bytes = nvme_room_.capacity();
  Clock::TimePoint next = read_breaker_.probe_at();
  while (read_breaker_.open()) {
    const Result<> slept = co_await parts_.loop.sleep_until(next, scope_.stop());
    if (!slept) break;
    next = parts_.loop.clock().now() + kProbePause;
    EvictionCandidate* candidate = nullptr;
    for (uint32_t g = 0; g < parts_.cache.groups() && candidate == nullptr; ++g) {
      candidate = policy(Tier::kNvme, g).victim();
    }
    if (candidate == nullptr || !read_breaker_.allows(parts_.loop.clock().now())) continue;
    auto& entry = static_cast<TierEntry&>(*candidate);
    DirectoryNode* node = entry.node;
    const uint32_t group = entry.group;
    const LowerPage& page = node->pages[group];
    auto memory = std::make_shared<kernels::DeviceMemory>();
    if (auto allocated = parts_.device.allocate_host(page.stored_bytes)) *memory = *allocated;
    if (memory->data == nullptr || page.stored_bytes > bytes) {
      read_breaker_.undecided();
      continue;
    }
    begin_move(*node, group, Move::kNvmeToDevice);
    const Result<> read = co_await parts_.store->get(
        page.slot, page.generation, {memory->data, page.stored_bytes}, memory, scope_.stop());
    end_move(*node, group, read.has_value());
    judge_read(read);
    const bool lost = !read && (read.error().code == ErrorCode::kCorrupt ||
                                read.error().code == ErrorCode::kNotFound);
    const bool reset = page.nvme_cleared && page.residency.may_drop(Tier::kNvme);
    if (lost || reset) drop_nvme(*node, group, true);
    directory_.settle(node);
    next = std::max(next, read_breaker_.probe_at());
    progress();
  }
  probing_reads_ = false;
}

}  // namespace spillway::cache
