#include "scheduler/memory_ledger.h"

#include <algorithm>
#include <limits>
#include <string>

#include "cache/host_pool.h"
#include "io/store_geometry.h"
#include "model/inspect.h"
#include "runtime/check.h"
#include "scheduler/pools.h"

namespace spillway::scheduler {
namespace {

constexpr uint64_t kTierBytesMax = uint64_t{16} << 40;

uint64_t user_pages(const kernels::KvGroupLayout& layout, uint32_t tokens) {
  return model::kv_bytes_of_sequence({&layout, 1}, tokens) / layout.page_bytes();
}

PolicyGroup policy_group(const kernels::KvGroupLayout& layout) {
  return {.page_tokens = layout.page_tokens, .window = layout.window};
}

// What a page takes of the host tier's memory.
uint64_t host_page_bytes(const LedgerQuestion& question, const kernels::KvGroupLayout& layout) {
  const size_t page = layout.page_bytes();
  if (question.host_codec == kernels::PageCodec::kIdentity) return page;
  const size_t bytes = kernels::likely_bytes(question.host_codec, layout.type, page);
  const size_t unit = cache::small_unit_bytes(page);
  return (bytes + unit - 1) / unit * unit;
}

struct UsersMax {
  uint64_t device = 0, host = 0;
};

// The host tier has memory for as many pages of each group as their share of the device's (Engine).
UsersMax users_of_pools(const LedgerQuestion& question, std::vector<LedgerGroup>& groups) {
  const auto pools =
      plan_pools(question.policy, question.groups, question.device_bytes, question.context_tokens);
  if (!pools) return {};
  PolicyOptions policy = question.policy;
  policy.step_tokens_max = pools->step_tokens_max;
  UsersMax most{UINT64_MAX, UINT64_MAX};
  double device_bytes = 0;
  for (size_t g = 0; g < question.groups.size(); ++g) {
    groups[g].device_bytes = uint64_t{pools->pages[g]} * question.groups[g].page_bytes();
    device_bytes += static_cast<double>(groups[g].device_bytes);
  }
  const double host_share = static_cast<double>(question.host_bytes) / device_bytes;
  for (size_t g = 0; g < question.groups.size(); ++g) {
    const kernels::KvGroupLayout& layout = question.groups[g];
    const uint64_t pages = pools->pages[g];
    const uint64_t kept = user_pages(layout, question.context_tokens);
    const uint64_t peak = peak_pages(policy, policy_group(layout), question.context_tokens);
    most.device = std::min(most.device, pages < peak ? 0 : (pages - peak) / kept + 1);
    const auto host_pages = static_cast<uint64_t>(static_cast<double>(pages) * host_share);
    const uint64_t user_bytes = kept * host_page_bytes(question, layout);
    most.host = std::min(most.host, host_pages * layout.page_bytes() / user_bytes);
  }
  return most;
}

Result<uint64_t> users_of_store(const LedgerQuestion& question, uint64_t user_bytes) {
  if (question.nvme_bytes == 0) return uint64_t{0};
  std::vector<uint32_t> slots;
  for (const auto& layout : question.groups) {
    slots.push_back(static_cast<uint32_t>(layout.page_bytes()));
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  const auto geometry =
      io::plan_geometry(question.nvme_bytes, slots, question.groups.front().page_tokens);
  if (!geometry) return geometry.error();
  return geometry->area_bytes / user_bytes;
}

void fill(LedgerTier& tier, uint64_t& left, uint64_t user_bytes) {
  tier.users = std::min(tier.users_max, left);
  tier.used_bytes = tier.users * user_bytes;
  left -= tier.users;
}

Result<> check_sizes(const LedgerQuestion& question) {
  for (const uint64_t bytes : {question.device_bytes, question.host_bytes, question.nvme_bytes}) {
    if (bytes > kTierBytesMax) return invalid_argument("a tier can have at most 16 TiB");
  }
  for (const auto& layout : question.groups) {
    if (layout.page_bytes() > std::numeric_limits<uint32_t>::max()) {
      return invalid_argument("a page of this shape would be over 4 GiB large");
    }
  }
  return {};
}

}  // namespace

Result<Ledger> make_ledger(const LedgerQuestion& question) {
  CHECK(!question.groups.empty());
  CHECK(question.context_tokens > 0);
  if (const auto sized = check_sizes(question); !sized) return sized.error();
  Ledger ledger;
  for (const kernels::KvGroupLayout& layout : question.groups) {
    LedgerGroup& group = ledger.groups.emplace_back();
    group.token_bytes = layout.layer_bytes() * layout.layers / layout.page_tokens;
    const uint64_t pages = user_pages(layout, question.context_tokens);
    group.user_tokens = pages * layout.page_tokens;
    group.user_bytes = pages * layout.page_bytes();
    ledger.token_bytes += group.token_bytes;
    if (layout.window == 0) ledger.far_token_bytes += group.token_bytes;
    ledger.user_bytes += group.user_bytes;
    ledger.host_user_bytes += pages * host_page_bytes(question, layout);
  }
  if (question.users > std::numeric_limits<uint64_t>::max() / ledger.user_bytes) {
    return invalid_argument("that many users take more bytes than there are numbers for");
  }
  ledger.all_bytes = question.users * ledger.user_bytes;
  const UsersMax pools = users_of_pools(question, ledger.groups);
  ledger.device.users_max = pools.device;
  ledger.host.users_max = pools.host;
  const auto stored = users_of_store(question, ledger.user_bytes);
  if (!stored) return stored.error();
  ledger.nvme.users_max = *stored;
  uint64_t left = question.users;
  fill(ledger.device, left, ledger.user_bytes);
  fill(ledger.host, left, ledger.host_user_bytes);
  fill(ledger.nvme, left, ledger.user_bytes);
  ledger.users_left_out = left;
  return ledger;
}

}  // namespace spillway::scheduler
