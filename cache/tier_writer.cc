// Down the tiers: paths wait in a queue, and one coroutine writes them behind, batch by batch.
#include <algorithm>
#include <utility>

#include "cache/tiers.h"
#include "runtime/check.h"

namespace spillway::cache {
namespace {

// Keeps a host page where it is while the ring reads it, also when nobody waits any more.
struct HostPin {
  HostPin(PagePool& of, PageId pinned) : pool(of), page(pinned) { pool.pin(page); }
  ~HostPin() { pool.unpin(page); }
  HostPin(const HostPin&) = delete;
  HostPin& operator=(const HostPin&) = delete;
  PagePool& pool;
  const PageId page;
};

}  // namespace

void Tiers::keep(KeptPath path) {
  if (options_.write == WritePolicy::kOff && !has_host()) return;
  if (path.keys.pages.empty()) return;
  if (!paths_.try_push(std::move(path))) ++paths_dropped_;
}

Task<> Tiers::write_behind() {
  for (;;) {
    Result<KeptPath> path = co_await paths_.pop(scope_.stop());
    if (!path) break;
    co_await write_path(std::move(*path));
  }
}

// Whether the prefix's end was kept before, or belongs to an open conversation. A bounded memory:
// when it is full it starts anew.
bool Tiers::seen_before(const PromptKeys& keys, bool session) {
  if (seen_.size() >= kSeenMax) seen_.clear();
  // A conversation's next turn goes through all its pages; a shared prefix through its first ones.
  // So one key in 16 tells where paths have been, and the last one where this one ends.
  bool seen = session;
  for (size_t i = 0; i < keys.pages.size(); i += 16) seen |= seen_[keys.pages[i].low]++ > 0;
  return seen;
}

// The nodes of the path's first `end` pages, each named by us as a transfer would. Shorter where a
// chain of equal keys is full.
std::vector<DirectoryNode*> Tiers::grow_path(const KeptPath& path,
                                             std::vector<DirectoryNode*> nodes, uint32_t end) {
  const uint32_t page_tokens = parts_.cache.page_tokens();
  while (nodes.size() < end) {
    DirectoryNode& parent = nodes.empty() ? directory_.root(path.keys.space) : *nodes.back();
    const size_t at = nodes.size();
    DirectoryNode* node = directory_.add(
        parent, path.keys.pages[at],
        std::span<const TokenId>(path.tokens).subspan(at * page_tokens, page_tokens));
    if (node == nullptr) break;
    node->last_use = tick_ - at;  // of equals the deepest goes first
    ++node->transfers;
    nodes.push_back(node);
  }
  return nodes;
}

void Tiers::release_nodes(const std::vector<DirectoryNode*>& nodes) {
  for (DirectoryNode* node : nodes) --node->transfers;
  // From the end: settling goes up the path as far as nodes are of no use.
  if (!nodes.empty()) directory_.settle(nodes.back());
}

Task<> Tiers::write_path(KeptPath path) {
  const bool reused = path.running || seen_before(path.keys, path.session);
  tick_ += path.keys.pages.size();
  const uint32_t groups = parts_.cache.groups();
  const uint32_t full = full_groups();
  const uint32_t page_bytes = static_cast<uint32_t>(parts_.cache.page_bytes(0));
  const uint32_t batch = std::max<uint32_t>(1, static_cast<uint32_t>(kBatchBytes / page_bytes));
  std::vector<DirectoryNode*> nodes;
  uint32_t end = 0;
  bool more = true;
  // Full-attention pages, front to back: each batch pins no more than it copies and what is before.
  for (uint32_t begin = 0; more && !scope_.stop().stopped(); begin = end) {
    end = std::min(begin + batch, static_cast<uint32_t>(path.keys.pages.size()));
    auto pinned = std::make_shared<PinnedPath>();
    if (auto found = parts_.cache.pin_path(path.keys, path.tokens, end, false)) {
      *pinned = std::move(*found);
    }
    const uint32_t there = static_cast<uint32_t>(pinned->pages[0].size());
    more = there == end;
    end = std::max(begin, there);
    nodes = grow_path(path, std::move(nodes), end);
    end = std::min(end, static_cast<uint32_t>(nodes.size()));
    if (end <= begin) break;
    co_await write_batch(std::move(pinned), nodes, begin, end, 0, full, reused);
    progress();
  }
  // The windows before the path's end.
  if (groups > full && !scope_.stop().stopped()) {
    auto pinned = std::make_shared<PinnedPath>();
    if (auto found = parts_.cache.pin_path(path.keys, path.tokens,
                                           static_cast<uint32_t>(nodes.size()), true)) {
      *pinned = std::move(*found);
      const auto there = static_cast<uint32_t>(pinned->pages[0].size());
      co_await write_batch(std::move(pinned), nodes, 0, there, full, groups, reused);
    }
  }
  touch(nodes, path);
  release_nodes(nodes);
  progress();
}

Task<> Tiers::write_batch(std::shared_ptr<PinnedPath> pinned, std::vector<DirectoryNode*> nodes,
                          uint32_t begin, uint32_t end, uint32_t first_group, uint32_t end_group,
                          bool reused) {
  if (has_host()) co_await copy_to_host(pinned, nodes, begin, end, first_group, end_group);
  if (parts_.store == nullptr) co_return;
  Scope puts(parts_.loop.executor(), scope_.stop());
  for (uint32_t position = begin; position < end; ++position) {
    for (uint32_t g = first_group; g < end_group; ++g) {
      const PageId page = pinned->pages[g][position];
      DirectoryNode* node = nodes[position];
      LowerPage& lower = node->pages[g];
      const bool from_host = lower.residency.in(Tier::kHost);
      if (page == kNoPage && !from_host) continue;
      const Move move = from_host ? Move::kHostToNvme : Move::kDeviceToNvme;
      if (!lower.residency.may_begin(move)) continue;
      if (!wants_write(*node, g, reused)) {
        ++nvme_.skipped;
        continue;
      }
      begin_move(*node, g, move);
      std::shared_ptr<void> owner = pinned;
      std::byte* data = nullptr;
      if (from_host) {
        owner = std::make_shared<HostPin>(host_pools_[g], lower.host_page);
        data = host_pools_[g].data(lower.host_page);
      } else {
        data = parts_.cache.page_data(g, page);
      }
      puts.spawn(put_page(node, g, {data, parts_.cache.page_bytes(g)}, std::move(owner)));
    }
  }
  pinned.reset();
  co_await puts.join();
}

// Makes room in the store where the policy allows it.
bool Tiers::wants_write(const DirectoryNode& node, uint32_t group, bool reused) {
  constexpr uint32_t kEvictMax =
      64;  // other sizes' slots may have to go before one of ours is free
  if (options_.write == WritePolicy::kOff) return false;
  if (!breaker_.allows(parts_.loop.clock().now())) return false;
  const bool again = reused || node.uses > 0;
  if (options_.write == WritePolicy::kReuse && !again) return false;
  const auto bytes = static_cast<uint32_t>(parts_.cache.page_bytes(group));
  if (parts_.store->free_slots(bytes) > 0) return true;
  if (!again) return false;
  for (uint32_t i = 0; i < kEvictMax && parts_.store->free_slots(bytes) == 0; ++i) {
    bool evicted = evict_one(Tier::kNvme, group);
    for (uint32_t g = 0; !evicted && g < parts_.cache.groups(); ++g) {
      evicted = evict_one(Tier::kNvme, g);
    }
    if (!evicted) break;
  }
  return parts_.store->free_slots(bytes) > 0;
}

Task<> Tiers::put_page(DirectoryNode* node, uint32_t group, std::span<std::byte> bytes,
                       std::shared_ptr<void> owner) {
  io::PageName name;
  name.space = node->space->identity;
  name.key = {node->key.low, node->key.high};
  name.parent = {node->uid, node->parent->uid};
  name.position = node->position;
  name.group = group;
  name.tokens = node->tokens;
  io::PagePayload payload;
  payload.bytes = bytes;
  payload.encoded_bytes = static_cast<uint32_t>(bytes.size());
  const uint64_t clears = clears_;
  Result<io::StoredPage> stored =
      co_await parts_.store->put(name, payload, std::move(owner), scope_.stop());
  const Clock::TimePoint now = parts_.loop.clock().now();
  if (stored) {
    breaker_.succeeded();
    ++nvme_.writes;
    nvme_.written_bytes += bytes.size();
    LowerPage& page = node->pages[group];
    page.slot = stored->slot;
    page.generation = stored->generation;
    page.codec = stored->codec;
    page.encoded_bytes = stored->encoded_bytes;
    page.stored_bytes = stored->stored_bytes;
    ++nvme_.pages;
    end_move(*node, group, true);
    // A reset that came meanwhile meant this page too.
    if (clears != clears_) drop_nvme(*node, group, true);
  } else {
    const ErrorCode code = stored.error().code;
    ++nvme_.skipped;
    if (code != ErrorCode::kCancelled && code != ErrorCode::kResourceExhausted) {
      ++nvme_.errors;
      breaker_.failed(now, code == ErrorCode::kDeadlineExceeded);
    }
    end_move(*node, group, false);
  }
}

Task<> Tiers::copy_to_host(std::shared_ptr<PinnedPath> pinned, std::vector<DirectoryNode*> nodes,
                           uint32_t begin, uint32_t end, uint32_t first_group, uint32_t end_group) {
  std::vector<std::pair<DirectoryNode*, uint32_t>> copied;
  kernels::Stream& stream = parts_.device.copy_out();
  for (uint32_t position = begin; position < end; ++position) {
    for (uint32_t g = first_group; g < end_group; ++g) {
      const PageId from = pinned->pages[g][position];
      DirectoryNode* node = nodes[position];
      LowerPage& lower = node->pages[g];
      if (from == kNoPage || !lower.residency.may_begin(Move::kDeviceToHost)) continue;
      PagePool& pool = host_pools_[g];
      while (pool.count(PageState::kFree) == 0 && evict_one(Tier::kHost, g)) {
      }
      lower.host_page = pool.acquire(PageState::kFilling);
      if (lower.host_page == kNoPage) {
        ++host_.skipped;
        continue;
      }
      begin_move(*node, g, Move::kDeviceToHost);
      stream.copy(pool.data(lower.host_page), parts_.cache.page_data(g, from), pool.page_bytes());
      copied.emplace_back(node, g);
    }
  }
  if (copied.empty()) co_return;
  const uint64_t clears = clears_;
  const std::unique_ptr<kernels::Event> done = parts_.device.make_event();
  stream.record(*done);
  co_await done->wait();
  for (auto [node, g] : copied) {
    PagePool& pool = host_pools_[g];
    LowerPage& lower = node->pages[g];
    pool.move(lower.host_page, PageState::kSealed);
    if (options_.verify_all) {
      lower.host_checksum = checksum_of({pool.data(lower.host_page), pool.page_bytes()});
    }
    ++host_.pages;
    ++host_.writes;
    host_.written_bytes += pool.page_bytes();
    end_move(*node, g, true);
    if (clears != clears_) drop_host(*node, g);
  }
}

}  // namespace spillway::cache
