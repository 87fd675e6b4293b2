// Down the tiers: paths wait in a queue, and one coroutine writes them behind, batch by batch.
#include <algorithm>
#include <chrono>
#include <utility>

#include "cache/tiers.h"
#include "kernels/stamp.h"
#include "runtime/check.h"

namespace spillway::cache {

void Tiers::keep(KeptPath path) {
  if (!has_host() && (parts_.store == nullptr || options_.write == WritePolicy::kOff)) return;
  if (path.keys.pages.empty()) return;
  if (queue_.size() >= kPathsMax) {
    ++paths_dropped_;
    return;
  }
  // What was swapped out is wanted first, and its device pages are the first to be taken.
  if (path.running) {
    queue_.push_front(std::move(path));
  } else {
    hold(path);
    queue_.push_back(std::move(path));
  }
  queued_.try_push(true);
}

void Tiers::hold(KeptPath& path) {
  if (!has_host() && (write_breaker_.open() || scope_.stop().stopped())) return;
  const auto pages = static_cast<uint32_t>(path.keys.pages.size());
  Hold held;
  held.id = path.hold = ++last_hold_;
  held.full = parts_.cache.pin_path(path.keys, path.tokens, pages, false);
  if (full_groups() < parts_.cache.groups()) {
    held.windows = parts_.cache.pin_path(path.keys, path.tokens, pages, true);
  }
  holds_.push_back(std::move(held));
  scope_.spawn(expire_hold(path.hold));
}

void Tiers::end_hold(uint64_t id) {
  if (std::erase_if(holds_, [id](const Hold& held) { return held.id == id; }) > 0) progress();
}

void Tiers::let_go_of_holds() { holds_.clear(); }

Task<> Tiers::expire_hold(uint64_t id) {
  co_await parts_.loop.sleep_for(kHoldMax, scope_.stop());
  end_hold(id);
}

Task<> Tiers::write_behind() {
  for (;;) {
    const Result<bool> woken = co_await queued_.pop(scope_.stop());
    if (!woken) break;
    while (!queue_.empty() && !scope_.stop().stopped()) {
      KeptPath path = std::move(queue_.front());
      queue_.pop_front();
      const uint64_t held = path.hold;
      writing_ = true;
      co_await write_path(std::move(path));
      writing_ = false;
      end_hold(held);
    }
  }
}

// Pages from the front that count as used again: up to where an earlier path has been, or all of an
// open conversation and of what runs. One key in 16 is remembered, in a bounded memory that starts
// anew when it is full.
uint32_t Tiers::reused_pages(const KeptPath& path) {
  constexpr uint32_t kEvery = 16;
  const auto pages = static_cast<uint32_t>(path.keys.pages.size());
  if (path.running) return pages;
  if (seen_.size() >= kSeenMax) seen_.clear();
  uint32_t reused = path.session ? pages : 0;
  for (uint32_t i = 0; i < pages; i += kEvery) {
    if (seen_[path.keys.pages[i].low]++ > 0) reused = std::max(reused, i + kEvery);
  }
  return std::min(reused, pages);
}

// Makes the nodes of the path's first `end` pages, each named by us as a transfer would. Fewer
// where a chain of equal keys is full.
void Tiers::grow_path(const KeptPath& path, std::vector<DirectoryNode*>& nodes, uint32_t end) {
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
    node->on_written_path = true;
    for (LowerPage& page : node->pages) unlist(page.nvme, Tier::kNvme);
    nodes.push_back(node);
  }
}

void Tiers::release_nodes(const std::vector<DirectoryNode*>& nodes) {
  for (DirectoryNode* node : nodes) {
    --node->transfers;
    node->on_written_path = false;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) list_idle(*node, g);
  }
  // From the end: settling goes up the path as far as nodes are of no use.
  if (!nodes.empty()) directory_.settle(nodes.back());
}

bool Tiers::any_to_write(const std::vector<DirectoryNode*>& nodes, const Range& range) const {
  for (uint32_t position = range.begin; position < range.end; ++position) {
    for (uint32_t g = range.first_group; g < range.end_group; ++g) {
      const Residency& residency = nodes[position]->pages[g].residency;
      if (has_host() && residency.may_begin(Move::kDeviceToHost)) return true;
      if (parts_.store != nullptr && residency.may_begin(Move::kDeviceToNvme)) return true;
    }
  }
  return false;
}

// Full-attention pages go front to back, a batch at a time: each pins what it copies and what is
// before for the time of the copy alone. Then the windows before the path's end.
Task<> Tiers::write_path(KeptPath path) {
  const uint32_t reused = reused_pages(path);
  const uint64_t clears = clears_;
  tick_ += path.keys.pages.size();
  const uint32_t groups = parts_.cache.groups();
  const uint32_t full = full_groups();
  const auto pages = static_cast<uint32_t>(path.keys.pages.size());
  const size_t batch_pages = std::min(kBatchBytes / parts_.cache.page_bytes(0), pages_in_buffers());
  const auto batch = static_cast<uint32_t>(std::max<size_t>(1, batch_pages));
  std::vector<DirectoryNode*> nodes;
  uint32_t end = 0;
  for (uint32_t begin = 0; begin < pages && clears == clears_; begin = end) {
    end = std::min(begin + batch, pages);
    grow_path(path, nodes, end);
    const auto known = static_cast<uint32_t>(nodes.size());
    const Range wanted{begin, std::min(end, known), 0, full};
    if (wanted.end <= begin) break;
    if (any_to_write(nodes, wanted)) {
      auto pinned = parts_.cache.pin_path(path.keys, path.tokens, wanted.end, false);
      const uint32_t there = pinned ? static_cast<uint32_t>(pinned->pages[0].size()) : 0;
      if (there > begin) {
        co_await write_batch(std::move(*pinned), nodes,
                             {begin, std::min(there, wanted.end), 0, full}, reused);
        progress();
      }
      if (there < wanted.end) break;
    }
    if (known < end) break;
    const Result<> goes_on = co_await parts_.loop.sleep_for(Clock::Duration::zero(), scope_.stop());
    if (!goes_on) break;
  }
  if (groups > full && clears == clears_) co_await write_windows(path, nodes, reused);
  touch(nodes, path);
  release_nodes(nodes);
  progress();
}

// How many pages can be on their way down at once. Buffers are of the largest group's page size.
size_t Tiers::pages_in_buffers() const {
  size_t pages = SIZE_MAX;
  if (staging_ != nullptr) pages = staging_->slots();
  if (host_is_encoded() && encoder_ != nullptr) pages = std::min(pages, encoder_->buffers());
  return pages;
}

// A window of which a page is missing is of no use, and it may have more pages than there are
// buffers: so it too goes down a batch at a time, each pinned anew.
Task<> Tiers::write_windows(const KeptPath& path, const std::vector<DirectoryNode*>& nodes,
                            uint32_t reused) {
  const uint64_t clears = clears_;
  const uint32_t groups = parts_.cache.groups();
  const uint32_t full = full_groups();
  const auto known = static_cast<uint32_t>(nodes.size());
  const size_t most = pages_in_buffers();
  for (uint32_t begin = 0; begin < known && !scope_.stop().stopped() && clears == clears_;) {
    auto pinned = parts_.cache.pin_path(path.keys, path.tokens, known, true);
    if (!pinned) break;
    const auto there = static_cast<uint32_t>(pinned->pages[0].size());
    uint32_t end = begin;
    for (size_t pages = 0; end < there && pages + (groups - full) <= most; ++end) {
      for (uint32_t g = full; g < groups; ++g) pages += pinned->pages[g][end] != kNoPage ? 1 : 0;
    }
    end = std::max(end, std::min(begin + 1, there));
    if (end <= begin) break;
    co_await write_batch(std::move(*pinned), nodes, {begin, end, full, groups}, reused);
    begin = end;
  }
}

Task<> Tiers::write_batch(PinnedPath pinned, std::vector<DirectoryNode*> nodes, Range range,
                          uint32_t reused) {
  const uint64_t clears = clears_;
  const Clock::TimePoint began = parts_.loop.clock().now();
  TraceEvent copied{.name = "copy", .lane = TraceLane::kCopyOut};
  kernels::Stream& stream = parts_.device.copy_out();
  const bool traced = parts_.loop.trace().on();
  if (traced) kernels::stamp(stream, parts_.loop.clock(), copied.begin);
  std::vector<Copy> copies;
  start_host_copies(pinned, nodes, range, copies);
  std::vector<Copy> staged;
  if (!has_host()) start_staged_copies(pinned, nodes, range, reused, staged);
  const auto pages = static_cast<int64_t>(copies.size() + staged.size());
  if (pages > 0 || traced) {  // the first stamp too is written before we go on
    const std::unique_ptr<kernels::Event> done = parts_.device.make_event();
    if (traced) kernels::stamp(stream, parts_.loop.clock(), copied.end);
    stream.record(*done);
    co_await done->wait();
    copied.arguments[0] = {"pages", pages};
    if (pages > 0 && traced && parts_.loop.trace().on()) parts_.loop.trace().add(copied);
  }
  pinned.lease.reset();  // the copies have ended: the disk may be as slow as it likes
  if (parts_.device.failure() != nullptr) {
    give_up_copies(copies);
    give_up_copies(staged);
    co_return;
  }
  co_await finish_host_copies(std::move(copies), began, clears);
  if (parts_.store == nullptr) co_return;
  if (has_host()) staged = begin_host_puts(nodes, range, reused);
  Scope puts(parts_.loop.executor(), scope_.stop());
  for (Copy& copy : staged) {
    // Whoever needs a buffer last lets go of it.
    puts.spawn(
        put_page({copy.node, copy.group, copy.reused, clears}, copy.data, std::move(copy.owner)));
  }
  co_await puts.join();
  co_await drop_unreachable(staged);
}

// The device has failed, so what lies where they were to go may not be the pages: it is nobody's.
void Tiers::give_up_copies(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    LowerPage& lower = copy.node->pages[copy.group];
    const bool to_host = has_host();
    if (to_host && !lower.host_units.empty()) {
      host_pools_[copy.group].release(std::exchange(lower.host_units, {}));
    }
    ++(to_host ? host_ : nvme_).skipped;
    if (!to_host) write_breaker_.undecided();
    end_move(*copy.node, copy.group, false);
  }
}

// Without a host tier pages go through a buffer.
void Tiers::start_staged_copies(const PinnedPath& pinned, const std::vector<DirectoryNode*>& nodes,
                                const Range& range, uint32_t reused, std::vector<Copy>& copies) {
  for (uint32_t position = range.begin; position < range.end; ++position) {
    for (uint32_t g = range.first_group; g < range.end_group; ++g) {
      const PageId from = pinned.pages[g][position];
      DirectoryNode* node = nodes[position];
      if (from == kNoPage || !node->pages[g].residency.may_begin(Move::kDeviceToNvme)) continue;
      std::shared_ptr<Staging::Slot> slot;
      if (way_is_whole(*node, g) && staging_->free_slots() > 0 &&
          makes_room(*node, g, position < reused, copies.size())) {
        slot = staging_->take();
      }
      if (slot == nullptr) {
        ++nvme_.skipped;
        continue;
      }
      begin_move(*node, g, Move::kDeviceToNvme);
      parts_.device.copy_out().copy(slot->data(), parts_.cache.page_data(g, from),
                                    parts_.cache.page_bytes(g));
      copies.push_back({node, g, slot->data(), slot, position < reused});
    }
  }
}

std::vector<Tiers::Copy> Tiers::begin_host_puts(const std::vector<DirectoryNode*>& nodes,
                                                const Range& range, uint32_t reused) {
  std::vector<Copy> puts;
  for (uint32_t position = range.begin; position < range.end; ++position) {
    for (uint32_t g = range.first_group; g < range.end_group; ++g) {
      DirectoryNode* node = nodes[position];
      LowerPage& lower = node->pages[g];
      if (!lower.residency.may_begin(Move::kHostToNvme)) continue;
      if (!way_is_whole(*node, g) || !makes_room(*node, g, position < reused, puts.size())) {
        ++nvme_.skipped;
        continue;
      }
      begin_move(*node, g, Move::kHostToNvme);
      std::byte* const data =
          host_is_encoded() ? nullptr : host_pools_[g].page_data(lower.host_units);
      puts.push_back(
          {node, g, data, std::make_shared<HostPin>(*this, *node, g), position < reused});
    }
  }
  return puts;
}

// Whether the page may be written now; evicts until there is a slot besides the `begun` ones that
// this batch will take.
bool Tiers::makes_room(const DirectoryNode& node, uint32_t group, bool reused, uint64_t begun) {
  if (options_.write == WritePolicy::kOff) return false;
  const bool again = reused || node.uses > 0 || is_missed(node, group);
  if (options_.write == WritePolicy::kReuse && !again) return false;
  return frees_slot(group, likely_bytes_[group], begun, again) &&
         write_breaker_.allows(parts_.loop.clock().now());
}

// Whether the store has more than `begun` slots for so many bytes. Pages of others may always go.
bool Tiers::frees_slot(uint32_t group, uint32_t bytes, uint64_t begun, bool may_evict) {
  constexpr uint32_t kEvictMax =
      64;  // other sizes' slots may have to go before one of ours is free
  const auto room = [&] { return parts_.store->free_slots(bytes) > begun; };
  for (uint32_t i = 0; i < kEvictMax && !room(); ++i) {
    if (!evict_other()) break;
  }
  for (uint32_t i = 0; may_evict && i < kEvictMax && !room(); ++i) {
    bool evicted = evict_one(Tier::kNvme, group);
    for (uint32_t g = 0; !evicted && g < parts_.cache.groups(); ++g) {
      evicted = evict_one(Tier::kNvme, g);
    }
    if (!evicted) break;
  }
  return room();
}

// The page as the store is to have it: encoded where that is worth it, else as it is. The owner of
// the page's own bytes is let go of when they are needed no more.
Task<Tiers::Stored> Tiers::encode(uint32_t group, std::byte* data, std::shared_ptr<void> owner) {
  const auto bytes = static_cast<uint32_t>(parts_.cache.page_bytes(group));
  Stored stored;
  stored.payload.bytes = {data, bytes};
  stored.payload.encoded_bytes = bytes;
  stored.owner = std::move(owner);
  if (encoder_ == nullptr) co_return stored;
  const std::shared_ptr<PageTranscoder::Buffer> buffer = encoder_->take_now();
  uint32_t encoded = 0;
  if (buffer != nullptr) {
    encoded = co_await encoder_->encode(options_.nvme_codec, stored.payload.bytes, buffer);
  }
  if (encoded == 0) {
    ++codec_.kept;
    co_return stored;
  }
  const uint32_t sectors = (encoded + io::kSectorBytes - 1) / io::kSectorBytes;
  stored.payload.bytes = buffer->bytes().first(size_t{sectors} * io::kSectorBytes);
  stored.payload.codec = static_cast<uint32_t>(options_.nvme_codec);
  stored.payload.encoded_bytes = encoded;
  stored.owner = buffer;
  co_return stored;
}

Task<> Tiers::put_page(Put put, std::byte* data, std::shared_ptr<void> owner) {
  DirectoryNode* const node = put.node;
  const uint32_t group = put.group;
  const size_t bytes = parts_.cache.page_bytes(group);
  Stored to_store;
  if (data == nullptr) {
    to_store = co_await lift_from_host(node, group, std::move(owner));
  } else {
    to_store = co_await encode(group, data, std::move(owner));
  }
  const auto stored_bytes = static_cast<uint32_t>(to_store.payload.bytes.size());
  const bool again = put.reused || node->uses > 0 || is_missed(*node, group);
  // What it takes is known only now, and a reset may have come meanwhile.
  if (put.clears != clears_ || stored_bytes == 0 ||
      (encoder_ != nullptr && !frees_slot(group, stored_bytes, 0, again))) {
    end_move(*node, group, false);
    ++nvme_.skipped;
    write_breaker_.undecided();
    if (to_store.corrupt) ++host_.corrupt;
    if (to_store.corrupt && may_drop_host(*node, group)) drop_host(*node, group);
    co_return;
  }
  io::PageName name;
  name.space = node->space->identity;
  name.key = {node->key.low, node->key.high};
  name.uid = node->uid;
  name.parent_uid = node->parent->uid;
  name.position = node->position;
  name.group = group;
  name.tokens = node->tokens;
  const Clock::TimePoint began = parts_.loop.clock().now();
  const Result<io::StoredPage> stored =
      co_await parts_.store->put(name, to_store.payload, std::move(to_store.owner), scope_.stop());
  if (!stored) {
    end_move(*node, group, false);
    ++nvme_.skipped;
    put_failed(stored.error().code);
    co_return;
  }
  write_breaker_.succeeded();
  nvme_.write_time.observe(parts_.loop.clock().now() - began);
  ++nvme_.writes;
  nvme_.written_bytes += bytes;
  if (stored->codec != 0) {
    ++codec_.encoded;
    codec_.bytes_before += bytes;
    codec_.bytes_after += stored_bytes;
  }
  likely_bytes_[group] = stored_bytes;
  LowerPage& page = node->pages[group];
  page.slot = stored->slot;
  page.generation = stored->generation;
  page.codec = stored->codec;
  page.encoded_bytes = stored->encoded_bytes;
  page.stored_bytes = stored->stored_bytes;
  page.bands = stored->bands;
  ++nvme_.pages;
  end_move(*node, group, true);
  entered_nvme(*node, group);
  // A reset that came meanwhile meant this page too.
  if (put.clears != clears_) drop_nvme(*node, group, true);
}

void Tiers::put_failed(ErrorCode code) {
  if (code == ErrorCode::kCancelled || code == ErrorCode::kResourceExhausted) {
    return write_breaker_.undecided();
  }
  ++nvme_.errors;
  write_breaker_.failed(parts_.loop.clock().now(), code == ErrorCode::kDeadlineExceeded);
}

}  // namespace spillway::cache
