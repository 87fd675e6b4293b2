// Host memory: pages that lie there as they are, which streams copy there and back, or encoded.
//
// With a codec (TiersOptions::host_codec) a page goes down through a buffer: a stream copies it
// there, its pins are given back, a worker encodes it into another buffer, and when its size is
// known it is given units (host_pool.h), for which as many other pages are evicted as it takes. On
// its way up a worker gathers and decodes it straight into the page's memory. So the device's pages
// wait for a copy alone, and a page has no place in host memory until it is known which. The
// buffers go from one worker's job to the next, never to a disk: who waits for one gets one.
//
// Each page of such a tier has a checksum, taken where it is put into its units: a decoder would
// make other numbers of wrong bytes and not know it. It costs a worker 20 us a page of 360 KiB.
//
// Sketch, SmolLM2 in f16: a page of 360 KiB, encoded at 1.3 GB/s and decoded at 1.5: 0.3 ms of a
// worker down, 0.3 up with the gathering, 19 us a token against the 300 of computing it.
#include <algorithm>
#include <utility>

#include "cache/tiers.h"
#include "io/ring.h"
#include "kernels/stamp.h"
#include "runtime/check.h"

namespace spillway::cache {

Tiers::HostPin::HostPin(Tiers& tiers, DirectoryNode& node, uint32_t group)
    : tiers_(tiers), node_(node), group_(group) {
  tiers_.host_pools_[group_].pin(node_.pages[group_].host_units);
  ++node_.transfers;
  tiers_.unlist(node_.pages[group_].host, Tier::kHost);
}

Tiers::HostPin::~HostPin() {
  tiers_.host_pools_[group_].unpin(node_.pages[group_].host_units);
  --node_.transfers;
  tiers_.list_idle(node_, group_);
  tiers_.directory_.settle(&node_);
}

// Whether nobody reads the page there.
bool Tiers::may_drop_host(const DirectoryNode& node, uint32_t group) const {
  const LowerPage& page = node.pages[group];
  return page.residency.may_drop(Tier::kHost) && host_pools_[group].pins(page.host_units) == 0;
}

void Tiers::drop_host(DirectoryNode& node, uint32_t group) {
  LowerPage& page = node.pages[group];
  page.residency.drop(Tier::kHost);
  leave(page.host, Tier::kHost);
  page.host_cleared = false;
  host_pools_[group].release(std::exchange(page.host_units, {}));
  --host_.pages;
}

// Room for so many bytes of a page; evicts others until there is. None: those that are left are
// read just now.
HostUnits Tiers::take_host_units(uint32_t group, size_t bytes) {
  HostUnits units = host_pools_[group].acquire(bytes);
  while (units.empty() && evict_one(Tier::kHost, group)) units = host_pools_[group].acquire(bytes);
  if (units.empty()) ++host_.skipped;
  return units;
}

// Device pages into host pages, or into buffers from which they are encoded.
void Tiers::start_host_copies(const PinnedPath& pinned, const std::vector<DirectoryNode*>& nodes,
                              const Range& range, std::vector<Copy>& copies) {
  if (!has_host()) return;
  for (uint32_t position = range.begin; position < range.end; ++position) {
    for (uint32_t g = range.first_group; g < range.end_group; ++g) {
      const PageId from = pinned.pages[g][position];
      LowerPage& lower = nodes[position]->pages[g];
      if (from == kNoPage || !lower.residency.may_begin(Move::kDeviceToHost)) continue;
      const size_t bytes = parts_.cache.page_bytes(g);
      Copy copy{nodes[position], g, nullptr, nullptr};
      if (host_is_encoded()) {
        const std::shared_ptr<Staging::Slot> slot = staging_->take();
        if (slot == nullptr) {
          ++host_.skipped;
          continue;
        }
        copy.data = slot->data();
        copy.owner = slot;
      } else {
        lower.host_units = take_host_units(g, bytes);
        if (lower.host_units.empty()) continue;
        copy.data = host_pools_[g].page_data(lower.host_units);
      }
      begin_move(*nodes[position], g, Move::kDeviceToHost);
      parts_.device.copy_out().copy(copy.data, parts_.cache.page_data(g, from), bytes);
      copies.push_back(std::move(copy));
    }
  }
}

// The copies of a batch have ended.
Task<> Tiers::finish_host_copies(std::vector<Copy> copies, Clock::TimePoint began,
                                 uint64_t clears) {
  if (!host_is_encoded()) {
    for (const Copy& copy : copies) {
      LowerPage& lower = copy.node->pages[copy.group];
      lower.host_bytes = static_cast<uint32_t>(parts_.cache.page_bytes(copy.group));
      if (options_.verify_all) lower.host_checksum = checksum_of({copy.data, lower.host_bytes});
      entered_host(*copy.node, copy.group, began, clears);
    }
    co_return;
  }
  Scope encodes(parts_.loop.executor(), scope_.stop());
  for (Copy& copy : copies) encodes.spawn(encode_to_host(std::move(copy), began, clears));
  co_await encodes.join();
}

void Tiers::entered_host(DirectoryNode& node, uint32_t group, Clock::TimePoint began,
                         uint64_t clears) {
  host_pools_[group].seal(node.pages[group].host_units);
  ++host_.pages;
  ++host_.writes;
  host_.written_bytes += parts_.cache.page_bytes(group);
  host_.write_time.observe(parts_.loop.clock().now() - began);
  end_move(node, group, true);
  // A reset that came meanwhile meant this page too.
  if (clears != clears_) drop_host(node, group);
}

Task<> Tiers::encode_to_host(Copy copy, Clock::TimePoint began, uint64_t clears) {
  DirectoryNode* const node = copy.node;
  const uint32_t group = copy.group;
  LowerPage& lower = node->pages[group];
  const auto buffer = co_await host_encoder_->take(scope_.stop());
  if (!buffer) {
    ++host_.skipped;
    end_move(*node, group, false);
    co_return;
  }
  std::span<const std::byte> kept(copy.data, parts_.cache.page_bytes(group));
  const uint32_t encoded = co_await host_encoder_->encode(options_.host_codec, kept, *buffer);
  const size_t page_bytes = kept.size();
  lower.host_codec = encoded == 0 ? kernels::PageCodec::kIdentity : options_.host_codec;
  if (encoded > 0) kept = (*buffer)->bytes().first(encoded);
  lower.host_bytes = static_cast<uint32_t>(kept.size());
  if (clears == clears_) lower.host_units = take_host_units(group, kept.size());
  if (lower.host_units.empty()) {
    end_move(*node, group, false);
    co_return;
  }
  std::function<void()> work = [&] {
    lower.host_checksum = checksum_of(kept);
    host_pools_[group].fill(lower.host_units, kept);
  };
  const Result<> filled = co_await parts_.run_work(std::move(work));
  if (!filled) {
    ++host_.skipped;
    host_pools_[group].release(std::exchange(lower.host_units, {}));
    end_move(*node, group, false);
    co_return;
  }
  if (encoded == 0) {
    ++host_codec_.kept;
  } else {
    ++host_codec_.encoded;
    host_codec_.bytes_before += page_bytes;
    host_codec_.bytes_after += encoded;
  }
  entered_host(*node, group, began, clears);
}

// REQUIRES: the page is pinned, or moves from there, until that has run.
PageTranscoder::Fill Tiers::gather(const LowerPage& page, uint32_t group) const {
  return [&page, &pool = host_pools_[group]](std::span<std::byte> to) {
    const std::span<std::byte> kept = to.first(page.host_bytes);
    pool.read(page.host_units, kept);
    std::fill(to.begin() + page.host_bytes, to.end(), std::byte{});
    return checksum_of(kept) == page.host_checksum;
  };
}

Task<Tiers::Fetched> Tiers::fetch_from_host(std::shared_ptr<Load> load, uint32_t position,
                                            uint32_t group, Permit permit) {
  Load::Slot& slot = load->at(position);
  const uint64_t bytes = parts_.cache.page_bytes(group);
  Fetched fetched;
  if (permit.units() == 0) {
    permit = co_await room_for(load, &load->host_turn, &host_room_, bytes);
  }
  if (permit.units() == 0) co_return fetched;
  std::shared_ptr<PageTranscoder::Buffer> buffer;
  if (host_is_encoded()) {
    auto taken = co_await host_decoder_->take(load->stop);
    if (!taken) co_return fetched;
    buffer = std::move(*taken);
  }
  if (!slot.is_wanted()) co_return fetched;
  const std::shared_ptr<FillingPage> page = slot.pages[group];
  const LowerPage& lower = slot.node->pages[group];
  const Clock::TimePoint began = transfer_began(*load, Tier::kHost, bytes);
  if (buffer == nullptr) {
    fetched.good = co_await copy_from_host(slot.node, group, page);
    // Of a copy that a lost device did not make the host page knows nothing.
    fetched.tried = parts_.device.failure() == nullptr;
    fetched.good = fetched.good && fetched.tried;
  } else {
    PageTranscoder::Fill fill = gather(lower, group);
    const Result<> decoded = co_await decode_onto(*host_decoder_, lower.host_codec, buffer,
                                                  lower.host_bytes, page, group, std::move(fill));
    fetched.good = decoded.has_value();
    // Workers that have too much to do say nothing about the page.
    fetched.tried = fetched.good || decoded.error().code == ErrorCode::kCorrupt;
    if (fetched.good && lower.host_codec != kernels::PageCodec::kIdentity) ++host_codec_.decoded;
  }
  if (fetched.tried && !fetched.good) {
    ++host_.corrupt;
    if (lower.host_codec != kernels::PageCodec::kIdentity) ++host_codec_.failed;
  }
  fetched.took = transfer_ended(*load, Tier::kHost, began, bytes, fetched.good);
  co_return fetched;
}

// False: the page has other bytes now than it had there.
Task<bool> Tiers::copy_from_host(DirectoryNode* node, uint32_t group,
                                 std::shared_ptr<FillingPage> page) {
  const LowerPage& lower = node->pages[group];
  const size_t bytes = parts_.cache.page_bytes(group);
  TraceEvent copied{.name = "copy",
                    .lane = TraceLane::kCopyIn,
                    .arguments = {{{"bytes", static_cast<int64_t>(bytes)}}}};
  const bool traced = parts_.loop.trace().on();
  const std::span<const std::byte> from(host_pools_[group].page_data(lower.host_units), bytes);
  const bool reached = parts_.device.host_reaches_memory();
  const auto verifies = [&](std::span<const std::byte> copy) {
    return !options_.verify_all || checksum_of(copy) == lower.host_checksum;
  };
  if (!reached && !verifies(from)) co_return false;
  if (reached) {
    kernels::Stream& stream = parts_.device.copy_in();
    if (traced) kernels::stamp(stream, parts_.loop.clock(), copied.begin);
    stream.copy(page->data(), from.data(), bytes);
    if (traced) kernels::stamp(stream, parts_.loop.clock(), copied.end);
    const std::unique_ptr<kernels::Event> done = parts_.device.make_event();
    stream.record(*done);
    co_await done->wait();
  } else {  // its stream tells no time
    copied.begin = parts_.loop.clock().now();
    co_await copies_up_.copy(page->data(), from);
    copied.end = parts_.loop.clock().now();
  }
  if (traced && parts_.loop.trace().on()) parts_.loop.trace().add(copied);
  co_return !reached || verifies({page->data(), bytes});
}

// What the store is to have of a page that lies in units: as it lies where the store's codec is the
// same, else decoded. Nothing: no buffer or worker is free, or it has other bytes than it had. The
// pin is let go of when the page is read no more.
Task<Tiers::Stored> Tiers::lift_from_host(DirectoryNode* node, uint32_t group,
                                          std::shared_ptr<void> pin) {
  const LowerPage& lower = node->pages[group];
  Stored stored;
  // A dead disk never gives its buffers back.
  const std::shared_ptr<PageTranscoder::Buffer> buffer = encoder_->take_now();
  if (buffer == nullptr) co_return stored;
  const auto gathered = co_await host_decoder_->take(scope_.stop());
  if (!gathered) co_return stored;
  const bool as_it_lies =
      lower.host_codec == kernels::PageCodec::kIdentity || lower.host_codec == options_.nvme_codec;
  const auto sectors_of = [](size_t bytes) {
    return (bytes + io::kSectorBytes - 1) / io::kSectorBytes * io::kSectorBytes;
  };
  const kernels::PageCodec codec = as_it_lies ? lower.host_codec : kernels::PageCodec::kIdentity;
  const size_t page_bytes = parts_.cache.page_bytes(group);
  const std::span<std::byte> to =
      buffer->bytes().first(as_it_lies ? sectors_of(lower.host_bytes) : page_bytes);
  PageTranscoder::Fill fill = gather(lower, group);
  const Result<> lifted = co_await host_decoder_->decode(
      as_it_lies ? kernels::PageCodec::kIdentity : lower.host_codec, *gathered,
      as_it_lies ? static_cast<uint32_t>(to.size()) : lower.host_bytes, to, std::move(fill));
  pin.reset();
  if (!lifted) {
    stored.corrupt = lifted.error().code == ErrorCode::kCorrupt;
    co_return stored;
  }
  stored.payload.bytes = to;
  stored.payload.codec = static_cast<uint32_t>(codec);
  stored.payload.encoded_bytes = as_it_lies ? lower.host_bytes : static_cast<uint32_t>(page_bytes);
  stored.owner = buffer;
  if (codec == kernels::PageCodec::kIdentity &&
      options_.nvme_codec != kernels::PageCodec::kIdentity) {
    ++codec_.kept;
  }
  co_return stored;
}

}  // namespace spillway::cache
