// A page on its way up: from a host page by a stream copy, from NVMe by a read into its own memory
// or, where a codec made it, into a buffer that a worker decodes.
#include <utility>

#include "cache/tiers.h"
#include "kernels/stamp.h"
#include "runtime/check.h"

namespace spillway::cache {

// False: the load was given up.
Task<bool> Tiers::start_fetches(std::shared_ptr<Load> load, uint32_t position) {
  Load::Slot& slot = load->at(position);
  uint64_t host_bytes = 0, nvme_bytes = 0;
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (slot.pages[g] == nullptr) continue;
    const bool host = slot.node->pages[g].residency.in(Tier::kHost);
    (host ? host_bytes : nvme_bytes) += parts_.cache.page_bytes(g);
  }
  Permit host_room, nvme_room;
  if (host_bytes > 0) {
    Result<Permit> room = co_await host_room_.acquire(host_bytes, load->stop);
    if (!room) co_return false;
    host_room = std::move(*room);
  }
  if (nvme_bytes > 0) {
    Result<Permit> room = co_await nvme_room_.acquire(nvme_bytes, load->stop);
    if (!room) co_return false;
    nvme_room = std::move(*room);
  }
  // Anything may have happened meanwhile; from here on nothing does until the moves have begun.
  if (slot.state != Load::State::kPlanned || waits_for_move(slot)) co_return true;
  bool held = true;
  uint64_t host_needed = 0, nvme_needed = 0;
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (slot.pages[g] == nullptr) continue;
    const bool host = slot.node->pages[g].residency.in(Tier::kHost);
    (host ? host_needed : nvme_needed) += parts_.cache.page_bytes(g);
    held = held && held_below(*slot.node, g, !read_breaker_.open());
  }
  // A page may have left the host tier meanwhile and come from NVMe now.
  held = held && host_needed <= host_room.units() && nvme_needed <= nvme_room.units();
  if (!held) {
    slot.failed = true;
    drop_slot(slot);
    progress();
    co_return true;
  }
  slot.state = Load::State::kMoving;
  slot.from = Tier::kHost;
  if (host_bytes + nvme_bytes == 0) {  // behind the windows of a model that has no other layers
    slot.state = Load::State::kReady;
    slot.from = has_host() ? Tier::kHost : Tier::kNvme;
    let_go(slot);
    progress();
    co_return true;
  }
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (slot.pages[g] == nullptr) continue;
    const bool host = slot.node->pages[g].residency.in(Tier::kHost);
    if (!host) {
      slot.from = Tier::kNvme;
      begin_move(*slot.node, g, Move::kNvmeToDevice);
    }
    ++slot.moving;
    Permit room = (host ? host_room : nvme_room).split(parts_.cache.page_bytes(g));
    std::shared_ptr<HostPin> pin;
    if (host) pin = std::make_shared<HostPin>(*this, *slot.node, g);
    scope_.spawn(fetch(load, position, g, std::move(pin), slot.pages[g], std::move(room)));
  }
  co_return true;
}

Task<> Tiers::fetch(std::shared_ptr<Load> load, uint32_t position, uint32_t group,
                    std::shared_ptr<HostPin> pin, std::shared_ptr<FillingPage> page,
                    Permit permit) {
  Load::Slot& slot = load->at(position);
  DirectoryNode* node = slot.node;
  const bool host = pin != nullptr;
  TransferRate& rate = host ? host_rate_ : nvme_rate_;
  TierStats& stats = host ? host_ : nvme_;
  const uint64_t bytes = permit.units();
  const Clock::TimePoint began = parts_.loop.clock().now();
  rate.began(began, bytes);
  bool good = false;
  if (host) {
    good = co_await fetch_from_host(node, group, page);
    pin.reset();
    if (!good && node->pages[group].residency.may_drop(Tier::kHost) &&
        host_pools_[group].pins(node->pages[group].host_page) == 0) {
      drop_host(*node, group);
    }
  } else {
    good = co_await fetch_from_nvme(load, node, group, page);
    // A reset that came meanwhile meant this page too; what led to it is gone.
    const LowerPage& read = node->pages[group];
    if (read.nvme_cleared && read.residency.may_drop(Tier::kNvme)) drop_nvme(*node, group, true);
  }
  const Clock::TimePoint ended = parts_.loop.clock().now();
  rate.ended(ended, bytes, good);
  permit.release();
  if (good || !load->stop.stopped()) stats.read_time.observe(ended - began);
  if (good) {
    ++stats.reads;
    stats.read_bytes += bytes;
  }
  page.reset();
  slot.failed |= !good;
  if (--slot.moving == 0) {
    let_go(slot);
    if (slot.state == Load::State::kMoving) {
      if (slot.failed) {
        slot.state = Load::State::kAbsent;
        slot.pages = {};
      } else {
        slot.state = Load::State::kReady;
      }
    }
  }
  progress();
}

Task<bool> Tiers::fetch_from_host(DirectoryNode* node, uint32_t group,
                                  std::shared_ptr<FillingPage> page) {
  const LowerPage& lower = node->pages[group];
  PagePool& pool = host_pools_[group];
  kernels::Stream& stream = parts_.device.copy_in();
  TraceEvent copied{.name = "copy",
                    .lane = TraceLane::kCopyIn,
                    .arguments = {{{"bytes", static_cast<int64_t>(pool.page_bytes())}}}};
  const bool traced = parts_.loop.trace().on();
  if (traced) kernels::stamp(stream, parts_.loop.clock(), copied.begin);
  stream.copy(page->data(), pool.data(lower.host_page), pool.page_bytes());
  if (traced) kernels::stamp(stream, parts_.loop.clock(), copied.end);
  const std::unique_ptr<kernels::Event> done = parts_.device.make_event();
  stream.record(*done);
  co_await done->wait();
  if (traced && parts_.loop.trace().on()) parts_.loop.trace().add(copied);
  if (!options_.verify_all) co_return true;
  const bool good = checksum_of({page->data(), pool.page_bytes()}) == lower.host_checksum;
  if (!good) ++host_.corrupt;
  co_return good;
}

Task<bool> Tiers::fetch_from_nvme(std::shared_ptr<Load> load, DirectoryNode* node, uint32_t group,
                                  std::shared_ptr<FillingPage> page) {
  const LowerPage& lower = node->pages[group];
  if (lower.codec != 0) co_return co_await fetch_encoded(load, node, group, page);
  const std::span<std::byte> to(page->data(), parts_.cache.page_bytes(group));
  const Result<> read =
      co_await parts_.store->get(lower.slot, lower.generation, to, page, load->stop);
  end_move(*node, group, read.has_value());
  judge_read(read);
  if (read) co_return true;
  const ErrorCode code = read.error().code;
  if (code == ErrorCode::kCancelled || code == ErrorCode::kDeadlineExceeded) {
    page->give_up();  // the read may still land in it
  } else if (code == ErrorCode::kCorrupt || code == ErrorCode::kNotFound) {
    drop_nvme(*node, group, true);
  }
  co_return false;
}

// Into a buffer, and decoded from there into the page by a worker.
Task<bool> Tiers::fetch_encoded(std::shared_ptr<Load> load, DirectoryNode* node, uint32_t group,
                                std::shared_ptr<FillingPage> page) {
  const LowerPage& lower = node->pages[group];
  const auto buffer = co_await decoder_->take(load->stop);
  if (!buffer) {
    end_move(*node, group, false);
    co_return false;
  }
  const std::span<std::byte> to = (*buffer)->bytes().first(lower.stored_bytes);
  const Result<> read =
      co_await parts_.store->get(lower.slot, lower.generation, to, *buffer, load->stop);
  judge_read(read);
  Result<> done = read;
  if (read) {
    const auto codec = kernels::page_codec_of(lower.codec);
    CHECK(codec.has_value());
    done = co_await decoder_->decode(*codec, *buffer, lower.encoded_bytes,
                                     {page->data(), parts_.cache.page_bytes(group)});
  }
  end_move(*node, group, done.has_value());
  if (done) {
    ++codec_.decoded;
    co_return true;
  }
  const ErrorCode code = done.error().code;
  if (read && code == ErrorCode::kCorrupt) {  // the checksum of bytes that nobody encoded
    ++codec_.failed;
    ++nvme_.errors;
    ++nvme_.corrupt;
  }
  if (code == ErrorCode::kCorrupt || code == ErrorCode::kNotFound) drop_nvme(*node, group, true);
  co_return false;
}

}  // namespace spillway::cache
