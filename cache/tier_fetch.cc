// A page on its way up: from host memory (tier_host.cc), or from NVMe by a read into its own
// memory, whole or band by band, or, where a codec made it, into a buffer that a worker decodes.
#include <algorithm>
#include <utility>

#include "cache/tiers.h"
#include "io/page_bands.h"
#include "runtime/check.h"

namespace spillway::cache {
namespace {

// Seconds of transfers that are in flight, where that is not too little to be quick.
constexpr double kHostAhead = 0.002, kNvmeAhead = 0.02, kLatenciesAhead = 8;
constexpr double kLeastInFlight = 2 << 20;  // bytes
constexpr double kHostPages = 4;            // so that workers who decode have work

}  // namespace

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
    drop_slot(*load, slot);
    progress();
    co_return true;
  }
  start_moves(load, position, host_room, nvme_room);
  co_return true;
}

// A fetch that gets no room of these waits for its own.
void Tiers::start_moves(const std::shared_ptr<Load>& load, uint32_t position, Permit& host_room,
                        Permit& nvme_room) {
  Load::Slot& slot = load->at(position);
  const bool any = std::any_of(slot.pages.begin(), slot.pages.end(),
                               [](const auto& page) { return page != nullptr; });
  if (!any) {  // behind the windows of a model that has no other layers
    slot.state = Load::State::kReady;
    slot.from = has_host() ? Tier::kHost : Tier::kNvme;
    let_go(slot);
    progress();
    return;
  }
  slot.state = Load::State::kMoving;
  slot.from = Tier::kHost;
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (slot.pages[g] == nullptr) continue;
    const bool host = slot.node->pages[g].residency.in(Tier::kHost);
    if (!host) {
      slot.from = Tier::kNvme;
      begin_move(*slot.node, g, Move::kNvmeToDevice);
    }
    ++slot.moving;
    Permit& rooms = host ? host_room : nvme_room;
    Permit room;
    if (rooms.units() > 0) room = rooms.split(parts_.cache.page_bytes(g));
    std::shared_ptr<HostPin> pin;
    if (host) pin = std::make_shared<HostPin>(*this, *slot.node, g);
    scope_.spawn(fetch(load, position, g, std::move(pin), std::move(room)));
  }
}

Task<> Tiers::fetch(std::shared_ptr<Load> load, uint32_t position, uint32_t group,
                    std::shared_ptr<HostPin> pin, Permit permit) {
  Load::Slot& slot = load->at(position);
  DirectoryNode* node = slot.node;
  const bool host = pin != nullptr;
  TierStats& stats = host ? host_ : nvme_;
  Fetched fetched;
  if (host) {
    fetched = co_await fetch_from_host(load, position, group, std::move(permit));
    pin.reset();
    const bool corrupt = fetched.tried && !fetched.good;
    if (corrupt && may_drop_host(*node, group)) drop_host(*node, group);
  } else {
    fetched = co_await fetch_from_nvme(load, position, group, std::move(permit));
    // A reset that came meanwhile meant this page too; what led to it is gone.
    const LowerPage& read = node->pages[group];
    if (read.nvme_cleared && read.residency.may_drop(Tier::kNvme)) drop_nvme(*node, group, true);
  }
  const bool counts = fetched.good || (fetched.tried && !load->stop.stopped());
  if (counts) stats.read_time.observe(fetched.took);
  if (fetched.good) {
    ++stats.reads;
    stats.read_bytes += parts_.cache.page_bytes(group);
    arrived(*load, slot, group, UINT32_MAX);
  } else if (slot.state == Load::State::kMoving) {
    abandon_step(*load);
  }
  slot.failed |= !fetched.good && slot.state == Load::State::kMoving;
  if (--slot.moving == 0) {
    let_go(slot);
    if (slot.state == Load::State::kMoving) {
      if (slot.failed) {
        slot.state = Load::State::kAbsent;
        left(*load, slot);
        slot.pages = {};
      } else {
        slot.state = Load::State::kReady;
      }
    }
  }
  progress();
}

Task<Permit> Tiers::room_for(std::shared_ptr<Load> load, Semaphore* turn, Semaphore* room,
                             uint64_t bytes) {
  const Result<Permit> first = co_await turn->acquire(1, load->stop);
  if (!first) co_return Permit();
  Result<Permit> permit = co_await room->acquire(bytes, load->stop);
  if (!permit) co_return Permit();
  co_return std::move(*permit);
}

// The time of a transfer begins when there is room for it in flight.
Clock::TimePoint Tiers::transfer_began(Load& load, Tier tier, uint64_t bytes) {
  const Clock::TimePoint now = parts_.loop.clock().now();
  (tier == Tier::kHost ? host_rate_ : nvme_rate_).began(now, bytes);
  load.in_flight[static_cast<size_t>(tier)] += bytes;
  return now;
}

Clock::Duration Tiers::transfer_ended(Load& load, Tier tier, Clock::TimePoint began, uint64_t bytes,
                                      bool whole) {
  const Clock::TimePoint now = parts_.loop.clock().now();
  (tier == Tier::kHost ? host_rate_ : nvme_rate_).ended(now, bytes, whole);
  load.in_flight[static_cast<size_t>(tier)] -= bytes;
  limit_in_flight(tier);
  return now - began;
}

// What is in flight cannot be taken back: until it has landed its memory is nobody's, and whoever
// would rather compute has to wait for it. So a slow tier gets no more than keeps it busy.
void Tiers::limit_in_flight(Tier tier) {
  const bool host = tier == Tier::kHost;
  const double rate = (host ? host_rate_ : nvme_rate_).measured_bytes_per_s();
  const double seconds =
      host ? kHostAhead : std::max(kNvmeAhead, kLatenciesAhead * nvme_latency_s_);
  Semaphore& room = host ? host_room_ : nvme_room_;
  const auto most = static_cast<double>(room.capacity());
  double least = kLeastInFlight;
  for (uint32_t g = 0; host && g < parts_.cache.groups(); ++g) {
    least = std::max(least, kHostPages * static_cast<double>(parts_.cache.page_bytes(g)));
  }
  least = std::min(least, most);
  room.set_limit(static_cast<uint64_t>(std::clamp(rate * seconds, least, most)));
}

// Where a read of the page goes: its own memory, or a buffer where the disk does not reach that. No
// owner: nobody wants the page any more.
Task<Tiers::Landing> Tiers::landing_for(std::shared_ptr<Load> load, uint32_t position,
                                        uint32_t group) {
  const Load::Slot& slot = load->at(position);
  const size_t bytes = parts_.cache.page_bytes(group);
  if (landing_ == nullptr) {
    const std::shared_ptr<FillingPage> page = slot.pages[group];
    co_return Landing{{page->data(), bytes}, page};
  }
  const auto buffer = co_await landing_->take(load->stop);
  if (!buffer || !slot.is_wanted()) co_return Landing();
  co_return Landing{(*buffer)->bytes().first(bytes), *buffer};
}

// From a buffer to the device's memory; both are held by the caller. False: the device has failed.
Task<bool> Tiers::bring_on(std::byte* to, std::span<const std::byte> from) {
  co_await copies_up_.copy(to, from);
  co_return parts_.device.failure() == nullptr;
}

// Into the page, or by way of a buffer.
Task<Result<>> Tiers::decode_onto(PageTranscoder& decoder, kernels::PageCodec codec,
                                  std::shared_ptr<PageTranscoder::Buffer> from,
                                  uint32_t encoded_bytes, std::shared_ptr<FillingPage> page,
                                  uint32_t group, PageTranscoder::Fill fill) {
  const size_t bytes = parts_.cache.page_bytes(group);
  std::span<std::byte> to(page->data(), bytes);
  std::shared_ptr<PageTranscoder::Buffer> landing;
  if (landing_ != nullptr) {
    auto taken = co_await landing_->take(scope_.stop());
    if (!taken) co_return taken.error();
    landing = *std::move(taken);
    to = landing->bytes().first(bytes);
  }
  Result<> done = co_await decoder.decode(codec, from, encoded_bytes, to, std::move(fill));
  if (done && landing != nullptr) {
    const bool brought = co_await bring_on(page->data(), to);
    if (!brought) done = cancelled_error();
  }
  co_return done;
}

// The page whole, or band by band: each waits for its turn behind the same band of the other pages,
// and is not asked for any more once nobody wants the page. While it waits the slot alone has the
// page, so that memory which nothing writes is free as soon as the slot is dropped.
Task<Tiers::Fetched> Tiers::fetch_from_nvme(std::shared_ptr<Load> load, uint32_t position,
                                            uint32_t group, Permit permit) {
  Load::Slot& slot = load->at(position);
  DirectoryNode* node = slot.node;
  const LowerPage& lower = node->pages[group];
  Fetched fetched;
  if (lower.codec != 0 && slot.is_wanted()) {
    fetched.tried = true;
    const uint64_t bytes = permit.units();
    const Clock::TimePoint began = transfer_began(*load, Tier::kNvme, bytes);
    fetched.good = co_await fetch_encoded(load, node, group, slot.pages[group]);
    fetched.took = transfer_ended(*load, Tier::kNvme, began, bytes, fetched.good);
    co_return fetched;
  }
  const uint32_t stored_bytes = lower.stored_bytes;
  const uint32_t bands = load->by_bands ? lower.bands : 1;
  Result<> read = cancelled_error();
  bool called_off = false;
  std::shared_ptr<FillingPage> page;
  for (uint32_t band = 0; band < bands; ++band) {
    const io::ByteRange range = io::bytes_of_bands(stored_bytes, bands, band, band + 1);
    const uint64_t bytes = range.end - range.begin;
    page.reset();
    if (permit.units() == 0) {
      permit = co_await room_for(load, &load->nvme_turn, &nvme_room_, bytes);
    }
    // Whole pages were asked for when the disk was not set aside; a band may come long after.
    called_off = permit.units() == 0 || !slot.is_wanted() || (bands > 1 && read_breaker_.open());
    if (called_off) break;
    auto place = co_await landing_for(load, position, group);
    called_off = place.owner == nullptr;
    if (called_off) break;
    page = slot.pages[group];
    const std::span<std::byte> to = place.bytes;
    fetched.tried = true;
    const Clock::TimePoint began = transfer_began(*load, Tier::kNvme, bytes);
    if (bands == 1) {
      read = co_await parts_.store->get(lower.slot, lower.generation, to, place.owner, load->stop);
    } else {
      read =
          co_await parts_.store->get_bands(lower.slot, lower.generation, band, band + 1,
                                           to.subspan(range.begin, bytes), place.owner, load->stop);
    }
    bool brought = true;
    if (read && landing_ != nullptr) {
      brought = co_await bring_on(page->data() + range.begin, to.subspan(range.begin, bytes));
    }
    const Clock::Duration took = transfer_ended(*load, Tier::kNvme, began, bytes, read.has_value());
    fetched.took += took;
    permit.release();
    if (!read) break;
    read_took(took);
    called_off = !brought;
    if (called_off) break;
    const auto layers = range.end / parts_.cache.layout(group).layer_bytes();
    if (band + 1 < bands) arrived(*load, slot, group, static_cast<uint32_t>(layers));
  }
  fetched.good = read.has_value() && !called_off;
  end_move(*node, group, fetched.good);
  if (fetched.tried) judge_read(read);
  if (called_off) fetched.tried = false;
  if (read) co_return fetched;
  const ErrorCode code = read.error().code;
  if (code == ErrorCode::kCancelled || code == ErrorCode::kDeadlineExceeded) {
    if (page != nullptr) page->give_up();  // the read may still land in it
  } else if (code == ErrorCode::kCorrupt || code == ErrorCode::kNotFound) {
    drop_nvme(*node, group, true);
  }
  co_return fetched;
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
  const Clock::TimePoint asked = parts_.loop.clock().now();
  const Result<> read =
      co_await parts_.store->get(lower.slot, lower.generation, to, *buffer, load->stop);
  if (read) read_took(parts_.loop.clock().now() - asked);
  judge_read(read);
  Result<> done = read;
  if (read) {
    const auto codec = kernels::page_codec_of(lower.codec);
    CHECK(codec.has_value());
    done = co_await decode_onto(*decoder_, *codec, *buffer, lower.encoded_bytes, page, group);
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
