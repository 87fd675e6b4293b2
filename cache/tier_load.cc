// Up the tiers: what is loaded for a sequence, in which order, and where it meets what is computed.
#include <algorithm>
#include <chrono>
#include <utility>

#include "cache/tiers.h"
#include "kernels/stamp.h"
#include "runtime/check.h"

namespace spillway::cache {
namespace {

constexpr std::chrono::microseconds kMovePause(500);  // between looks at pages that are moving
constexpr uint32_t kMoveLooksMax = 20;                // of one load
constexpr std::chrono::milliseconds kWatchPause(5);
constexpr uint32_t kComputeAhead = 256;  // tokens of a path that is loading, in one step

}  // namespace

bool Tiers::held_below(const DirectoryNode& node, uint32_t group, bool nvme) const {
  const Residency& residency = node.pages[group].residency;
  return residency.in(Tier::kHost) || (residency.in(Tier::kNvme) && nvme);
}

// How far a load from `begin` on can reach: with full attention alone up to the last page that is
// held, gaps being computed; with windows only where all pages are held and so is the last window.
uint32_t Tiers::loadable_end(const std::vector<DirectoryNode*>& nodes, uint32_t begin,
                             bool nvme) const {
  const uint32_t full = full_groups();
  const uint32_t groups = parts_.cache.groups();
  const auto held = [&](uint32_t position, uint32_t from, uint32_t to) {
    for (uint32_t g = from; g < to; ++g) {
      if (!held_below(*nodes[position], g, nvme)) return false;
    }
    return true;
  };
  auto end = static_cast<uint32_t>(nodes.size());
  if (full == groups) {
    while (end > begin && !held(end - 1, 0, full)) --end;
    return end;
  }
  uint32_t whole = begin;
  while (whole < end && held(whole, 0, full)) ++whole;
  for (end = whole; end > begin; --end) {
    uint32_t from = end;
    const uint32_t first = std::max(begin, parts_.cache.first_visible_page(full, end));
    while (from > first && held(from - 1, full, groups)) --from;
    if (from == first) break;
  }
  return end;
}

uint32_t Tiers::match_length(const PromptKeys& keys, std::span<const TokenId> tokens,
                             uint32_t device_tokens) const {
  const uint32_t page_tokens = parts_.cache.page_tokens();
  const auto most = static_cast<uint32_t>((tokens.size() - 1) / page_tokens);
  const std::vector<DirectoryNode*> nodes = directory_.walk(keys, tokens, most);
  const uint32_t begin = device_tokens / page_tokens;
  if (nodes.size() <= begin) return device_tokens;
  return loadable_end(nodes, begin, true) * page_tokens;
}

bool Tiers::needs(const Load& load, uint32_t position, uint32_t group) const {
  return !parts_.cache.is_window(group) ||
         position >= parts_.cache.first_visible_page(group, load.end());
}

// Device pages for one position, or none of them.
bool Tiers::reserve_pages(Load& load, uint32_t position) {
  Load::Slot& slot = load.at(position);
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (!needs(load, position, g)) continue;
    const PageId page = parts_.cache.begin_filling(g, load.gentle);
    if (page == kNoPage) {
      slot.pages = {};
      return false;
    }
    slot.pages[g] = std::make_shared<FillingPage>(parts_.cache, g, page);
  }
  return true;
}

// All that is held below after the sequence's end, planned; no page is set aside yet.
std::shared_ptr<Load> Tiers::plan_load(const PromptKeys& keys, std::span<const TokenId> tokens,
                                       const Sequence& sequence) {
  CHECK(parts_.cache.can_adopt(sequence));
  const uint32_t page_tokens = parts_.cache.page_tokens();
  const uint32_t begin = sequence.size() / page_tokens;
  const auto most = static_cast<uint32_t>((tokens.size() - 1) / page_tokens);
  const std::vector<DirectoryNode*> nodes = directory_.walk(keys, tokens, most);
  if (nodes.size() <= begin) return nullptr;
  const bool nvme = !read_breaker_.open();
  const uint32_t end = loadable_end(nodes, begin, nvme);
  if (end == begin) return nullptr;
  auto load = std::make_shared<Load>();
  load->begin = begin;
  load->whole = full_groups() < parts_.cache.groups();
  load->slots.resize(end - begin);
  for (uint32_t position = begin; position < end; ++position) {
    Load::Slot& slot = load->at(position);
    bool held = true;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      held = held && (!needs(*load, position, g) || held_below(*nodes[position], g, nvme));
    }
    if (!held) continue;
    slot.node = nodes[position];
    slot.state = Load::State::kPlanned;
    ++slot.node->transfers;
    // Wanted now: it is not the next to be evicted before its turn comes.
    slot.node->last_use = ++tick_;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
        LowerPage& page = slot.node->pages[g];
        TierEntry& entry = tier == Tier::kHost ? page.host : page.nvme;
        if (!entry.held) continue;
        policy(tier, g).used(entry.last_use, tick_, 1);
        entry.last_use = tick_;
        if (entry.listed) policy(tier, g).update(entry);
      }
    }
  }
  return load;
}

std::shared_ptr<Load> Tiers::begin_load(const PromptKeys& keys, std::span<const TokenId> tokens,
                                        const Sequence& sequence, double compute_price) {
  const std::shared_ptr<Load> load = plan_load(keys, tokens, sequence);
  if (load == nullptr) return nullptr;
  const uint32_t begin = load->begin, end = load->end();
  // What is better computed is not even planned; from the back, as far as there are device pages.
  pass(*load, std::min(meet(*load, begin, compute_price), end));
  bool room = true;
  for (uint32_t position = end; position > begin; --position) {
    Load::Slot& slot = load->at(position - 1);
    if (slot.state != Load::State::kPlanned) continue;
    room = room && reserve_pages(*load, position - 1);
    if (!room) drop_slot(slot);
  }
  if (finished(*load)) return nullptr;
  start_load(load);
  return load;
}

std::shared_ptr<Load> Tiers::begin_prefetch(const PromptKeys& keys, std::span<const TokenId> tokens,
                                            const Sequence& sequence) {
  const std::shared_ptr<Load> load = plan_load(keys, tokens, sequence);
  if (load == nullptr) return nullptr;
  load->gentle = true;
  bool room = true;
  for (uint32_t position = load->begin; position < load->end(); ++position) {
    Load::Slot& slot = load->at(position);
    // Nothing computes what is missing, so what comes after it is of no use.
    room = room && slot.state == Load::State::kPlanned && reserve_pages(*load, position);
    if (!room && slot.state == Load::State::kPlanned) drop_slot(slot);
  }
  if (load->whole && !room) pass(*load, load->end());
  if (finished(*load)) return nullptr;
  start_load(load);
  return load;
}

void Tiers::start_load(const std::shared_ptr<Load>& load) {
  loads_.push_back(load);
  scope_.spawn(run_load(load));
  scope_.spawn(watch(load));
}

bool Tiers::others_load() const {
  return std::any_of(loads_.begin(), loads_.end(),
                     [this](const auto& load) { return !load->gentle && !finished(*load); });
}

// The planned or moving pages from `begin` on, at the measured rates, against computing them.
uint32_t Tiers::meet(const Load& load, uint32_t begin, double compute_price) const {
  LoadQuestion question;
  question.page_tokens = parts_.cache.page_tokens();
  question.begin = question.end = begin;
  question.compute_price = compute_price;
  const Clock::TimePoint now = parts_.loop.clock().now();
  const double host_s = 1 / host_rate_.bytes_per_s(now), nvme_s = 1 / nvme_rate_.bytes_per_s(now);
  double seconds = 0, own_host = 0, own_nvme = 0;
  bool uses_host = false, uses_nvme = false;
  for (uint32_t position = begin; position < load.end(); ++position) {
    const Load::Slot& slot = load.at(position);
    if (slot.state != Load::State::kPlanned && slot.state != Load::State::kMoving) continue;
    ++question.end;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      if (!needs(load, position, g)) continue;
      const bool host = slot.node->pages[g].residency.in(Tier::kHost);
      const auto bytes = static_cast<double>(parts_.cache.page_bytes(g));
      seconds += bytes * (host ? host_s : nvme_s);
      (host ? uses_host : uses_nvme) = true;
      if (slot.state == Load::State::kMoving) (host ? own_host : own_nvme) += bytes;
    }
  }
  if (question.end == begin) return begin;
  question.load_seconds = seconds / (question.end - begin);
  // What others have in flight goes first.
  const auto queued = [](const TransferRate& rate, double own, double per_byte) {
    return std::max(static_cast<double>(rate.in_flight_bytes()) - own, 0.0) * per_byte;
  };
  if (uses_host) question.queued_seconds += queued(host_rate_, own_host, host_s);
  if (uses_nvme) question.queued_seconds += queued(nvme_rate_, own_nvme, nvme_s);
  return meeting_point(question, compute_rate_);
}

void Tiers::let_go(Load::Slot& slot) {
  DirectoryNode* node = std::exchange(slot.node, nullptr);
  --node->transfers;
  directory_.settle(node);
}

// The sequence will compute this position. What is moving there lands in memory that is nobody's.
void Tiers::drop_slot(Load::Slot& slot) {
  const Load::State state = std::exchange(slot.state, Load::State::kAbsent);
  if (state == Load::State::kMoving) {
    for (auto& page : slot.pages) {
      if (page != nullptr) page->give_up();
    }
  }
  if (state == Load::State::kPlanned) let_go(slot);
  slot.pages = {};
}

// Gives up what lies before `position`.
void Tiers::pass(Load& load, uint32_t position) {
  for (uint32_t at = load.begin; at < std::min(position, load.end()); ++at) {
    Load::Slot& slot = load.at(at);
    if (slot.state != Load::State::kAbsent && slot.state != Load::State::kTaken) drop_slot(slot);
  }
}

void Tiers::give_up(std::shared_ptr<Load> load) {
  load->given_up = true;
  std::erase(loads_, load);
  pass(*load, load->end());
  load->stop.stop();
}

bool Tiers::finished(const Load& load) const {
  return std::all_of(load.slots.begin(), load.slots.end(), [](const Load::Slot& slot) {
    return slot.state == Load::State::kAbsent || slot.state == Load::State::kTaken;
  });
}

uint32_t Tiers::compute_until(Load& load, uint32_t size, double compute_price) {
  const uint32_t page_tokens = parts_.cache.page_tokens();
  const auto pending = [](const Load::Slot& slot) {
    return slot.state != Load::State::kAbsent && slot.state != Load::State::kTaken;
  };
  const uint32_t next = std::max(load.begin, (size + page_tokens - 1) / page_tokens);
  pass(load, next);
  const auto from = load.slots.begin() + std::min<ptrdiff_t>(next - load.begin, load.slots.size());
  const bool failed = std::any_of(from, load.slots.end(), [](const auto& slot) {
    return slot.failed && slot.state == Load::State::kAbsent;
  });
  if (load.whole && failed) pass(load, load.end());
  for (bool again = true;; again = false) {
    uint32_t first = next;
    while (first < load.end() && !pending(load.at(first))) ++first;
    if (first >= load.end()) return UINT32_MAX;
    if (!again) return first * page_tokens;
    // Ready pages wait for nothing; the plan is about those still to come before them.
    if (load.at(first).state == Load::State::kReady && !load.whole) return first * page_tokens;
    const uint32_t computed = meet(load, first, compute_price) - first;
    uint32_t meeting = first;
    // A chunk cannot be taken back, and rates change: the plan is made anew before the next.
    const uint32_t last = std::min(load.end(), next + kComputeAhead / page_tokens);
    for (uint32_t left = computed; left > 0 && meeting < last; ++meeting) {
      const Load::State state = load.at(meeting).state;
      left -= state == Load::State::kPlanned || state == Load::State::kMoving;
    }
    pass(load, meeting);
  }
}

bool Tiers::adopt(Load& load, Sequence& sequence, std::span<const TokenId> tokens) {
  const uint32_t page_tokens = parts_.cache.page_tokens();
  if (sequence.size() % page_tokens != 0) return false;
  const uint32_t begin = sequence.size() / page_tokens;
  if (begin < load.begin || begin >= load.end()) return false;
  if (!parts_.cache.can_adopt(sequence)) {  // its pages stay its own (case K17): for good
    pass(load, load.end());
    return false;
  }
  uint32_t end = begin;
  while (end < load.end() && load.at(end).state == Load::State::kReady) ++end;
  if (end == begin || (load.whole && end < load.end())) return false;
  std::vector<PageSet> pages;
  for (uint32_t position = begin; position < end; ++position) {
    Load::Slot& slot = load.at(position);
    PageSet set{kNoPage, kNoPage};
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      if (slot.pages[g] != nullptr) set[g] = slot.pages[g]->take();
    }
    pages.push_back(set);
    slot.pages = {};
    slot.state = Load::State::kTaken;
    ++load.adopted[static_cast<size_t>(slot.from)];
    ++(slot.from == Tier::kHost ? host_ : nvme_).hits;
  }
  const size_t from = size_t{begin} * page_tokens;
  parts_.cache.adopt(sequence, tokens.subspan(from, size_t{end - begin} * page_tokens),
                     std::move(pages));
  return true;
}

// Whether a page of it is just being read from NVMe for another.
bool Tiers::waits_for_move(const Load::Slot& slot) const {
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (slot.pages[g] == nullptr) continue;
    const Residency& residency = slot.node->pages[g].residency;
    if (!residency.in(Tier::kHost) && residency.move() != Move::kNone) return true;
  }
  return false;
}

// Starts the fetches of one load, back to front, as far as the bytes in flight allow. Pages that
// are moving are looked at again when all others are under way.
Task<> Tiers::run_load(std::shared_ptr<Load> load) {
  for (uint32_t look = 0; look <= kMoveLooksMax && !load->given_up; ++look) {
    bool left = false;
    for (uint32_t position = load->end(); position > load->begin; --position) {
      const Load::Slot& slot = load->at(position - 1);
      if (slot.state != Load::State::kPlanned) continue;
      if (waits_for_move(slot)) {
        left = true;
        continue;
      }
      while (load->gentle && others_load() && !load->given_up) {
        const Result<> slept = co_await parts_.loop.sleep_for(kMovePause, load->stop);
        if (!slept) break;
      }
      if (load->given_up) break;
      const bool goes_on = co_await start_fetches(load, position - 1);
      if (!goes_on) break;
    }
    if (!left || load->given_up) break;
    const Result<> slept = co_await parts_.loop.sleep_for(kMovePause, load->stop);
    if (!slept) break;
  }
  for (Load::Slot& slot : load->slots) {
    if (slot.state != Load::State::kPlanned) continue;
    slot.failed = true;
    drop_slot(slot);
  }
  progress();
}

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
  const uint64_t clears = clears_;
  const Clock::TimePoint began = parts_.loop.clock().now();
  rate.began(began, bytes);
  bool good = false;
  if (host) {
    good = co_await fetch_from_host(node, group, page);
    pin.reset();
    if ((!good || clears != clears_) && node->pages[group].residency.may_drop(Tier::kHost) &&
        host_pools_[group].pins(node->pages[group].host_page) == 0) {
      drop_host(*node, group);
    }
  } else {
    good = co_await fetch_from_nvme(load, node, group, page);
    // A reset that came meanwhile meant this page too; what led to it is gone.
    if (clears != clears_ && node->pages[group].residency.may_drop(Tier::kNvme)) {
      drop_nvme(*node, group, true);
    }
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

// While a load runs its sequence looks again now and then, for a stalled disk tells nothing.
Task<> Tiers::watch(std::shared_ptr<Load> load) {
  while (!load->given_up && !finished(*load)) {
    const Result<> slept = co_await parts_.loop.sleep_for(kWatchPause, load->stop);
    if (!slept) break;
    progress();
  }
}

void Tiers::wake_soon() {
  if (!std::exchange(waking_, true)) scope_.spawn(wake_later());
}

Task<> Tiers::wake_later() {
  (void)co_await parts_.loop.sleep_for(kWatchPause, scope_.stop());
  waking_ = false;
  progress();
}

}  // namespace spillway::cache
