// Up the tiers: what is loaded for a sequence, in which order, and where it meets what is computed.
#include <algorithm>
#include <chrono>
#include <utility>

#include "cache/tiers.h"
#include "runtime/check.h"

namespace spillway::cache {
namespace {

constexpr std::chrono::microseconds kMovePause(200);  // between looks at a page that is moving
constexpr uint32_t kMoveLooks = 250;
constexpr std::chrono::milliseconds kWatchPause(5);

}  // namespace

bool Tiers::held_below(const DirectoryNode& node, uint32_t group) const {
  const Residency& residency = node.pages[group].residency;
  return residency.in(Tier::kHost) || (residency.in(Tier::kNvme) && !breaker_.open());
}

// How far a load from `begin` on can reach: with full attention alone up to the last page that is
// held, gaps being computed; with windows only where all pages are held and so is the last window.
uint32_t Tiers::loadable_end(const std::vector<DirectoryNode*>& nodes, uint32_t begin) const {
  const uint32_t full = full_groups();
  const uint32_t groups = parts_.cache.groups();
  const auto held = [&](uint32_t position, uint32_t from, uint32_t to) {
    for (uint32_t g = from; g < to; ++g) {
      if (!held_below(*nodes[position], g)) return false;
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

uint32_t Tiers::match_length(const PromptKeys& keys, std::span<const TokenId> tokens) const {
  const uint32_t page_tokens = parts_.cache.page_tokens();
  const auto most = static_cast<uint32_t>((tokens.size() - 1) / page_tokens);
  return loadable_end(directory_.walk(keys, tokens, most), 0) * page_tokens;
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
    const PageId page = parts_.cache.begin_filling(g);
    if (page == kNoPage) {
      slot.pages = {};
      return false;
    }
    slot.pages[g] = std::make_shared<FillingPage>(parts_.cache, g, page);
  }
  return true;
}

uint64_t Tiers::bytes_of(const Load::Slot& slot) const {
  uint64_t bytes = 0;
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (slot.pages[g] != nullptr) bytes += parts_.cache.page_bytes(g);
  }
  return bytes;
}

std::shared_ptr<Load> Tiers::begin_load(const PromptKeys& keys, std::span<const TokenId> tokens,
                                        const Sequence& sequence, double compute_price) {
  CHECK(parts_.cache.can_adopt(sequence));
  const uint32_t page_tokens = parts_.cache.page_tokens();
  const uint32_t begin = sequence.size() / page_tokens;
  const auto most = static_cast<uint32_t>((tokens.size() - 1) / page_tokens);
  const std::vector<DirectoryNode*> nodes = directory_.walk(keys, tokens, most);
  if (nodes.size() <= begin) return nullptr;
  const uint32_t end = loadable_end(nodes, begin);
  if (end == begin) return nullptr;
  auto load = std::make_shared<Load>();
  load->begin = begin;
  load->whole = full_groups() < parts_.cache.groups();
  load->slots.resize(end - begin);
  for (uint32_t position = begin; position < end; ++position) {
    Load::Slot& slot = load->at(position);
    bool held = true;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      held = held && (!needs(*load, position, g) || held_below(*nodes[position], g));
    }
    if (!held) continue;
    slot.node = nodes[position];
    slot.state = Load::State::kPlanned;
    ++slot.node->transfers;
  }
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
  ++loads_;
  scope_.spawn(run_load(load));
  scope_.spawn(watch(load));
  return load;
}

// The planned or moving pages from `begin` on, at the measured rates, against computing them.
uint32_t Tiers::meet(const Load& load, uint32_t begin, double compute_price) const {
  LoadQuestion question;
  question.page_tokens = parts_.cache.page_tokens();
  question.begin = question.end = begin;
  question.compute_price = compute_price;
  double seconds = 0;
  const Clock::TimePoint now = parts_.loop.clock().now();
  for (uint32_t position = begin; position < load.end(); ++position) {
    const Load::Slot& slot = load.at(position);
    if (slot.state != Load::State::kPlanned && slot.state != Load::State::kMoving) continue;
    ++question.end;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      if (!needs(load, position, g)) continue;
      const bool host = slot.node->pages[g].residency.in(Tier::kHost);
      seconds += static_cast<double>(parts_.cache.page_bytes(g)) /
                 (host ? host_rate_ : nvme_rate_).bytes_per_s(now);
    }
  }
  if (question.end == begin) return begin;
  question.load_seconds = seconds / (question.end - begin) * std::max(1u, loads_);
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
  pass(*load, load->end());
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
  pass(load, (size + page_tokens - 1) / page_tokens);
  const bool failed = std::any_of(load.slots.begin(), load.slots.end(), [](const auto& slot) {
    return slot.failed && slot.state == Load::State::kAbsent;
  });
  if (load.whole && failed) pass(load, load.end());
  for (bool again = true;; again = false) {
    uint32_t first = std::max(load.begin, (size + page_tokens - 1) / page_tokens);
    while (first < load.end() && !pending(load.at(first))) ++first;
    if (first >= load.end()) return UINT32_MAX;
    if (!again) return first * page_tokens;
    // Ready pages wait for nothing; the plan is about those still to come before them.
    if (load.at(first).state == Load::State::kReady && !load.whole) return first * page_tokens;
    const uint32_t computed = meet(load, first, compute_price) - first;
    uint32_t meeting = first;
    for (uint32_t left = computed; left > 0 && meeting < load.end(); ++meeting) {
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

bool Tiers::moving(const Load::Slot& slot) const {
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (slot.pages[g] != nullptr && slot.node->pages[g].residency.move() != Move::kNone)
      return true;
  }
  return false;
}

// Starts the fetches of one load, back to front, as far as the bytes in flight allow.
Task<> Tiers::run_load(std::shared_ptr<Load> load) {
  for (uint32_t position = load->end(); position > load->begin && !load->given_up; --position) {
    Load::Slot& slot = load->at(position - 1);
    if (slot.state != Load::State::kPlanned) continue;
    Result<Permit> room = co_await load_room_.acquire(bytes_of(slot), scope_.stop());
    if (!room) break;
    // A page that is just being written down, or loaded by another, is there in a moment.
    for (uint32_t i = 0; i < kMoveLooks; ++i) {
      if (slot.state != Load::State::kPlanned || !moving(slot)) break;
      const Result<> slept = co_await parts_.loop.sleep_for(kMovePause, scope_.stop());
      if (!slept) break;
    }
    if (slot.state != Load::State::kPlanned) continue;
    bool held = !moving(slot);
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      held = held && (slot.pages[g] == nullptr || held_below(*slot.node, g));
    }
    if (!held || scope_.stop().stopped()) {
      slot.failed = true;
      drop_slot(slot);
      progress();
      continue;
    }
    slot.state = Load::State::kMoving;
    slot.from = Tier::kHost;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) slot.moving += slot.pages[g] != nullptr;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      if (slot.pages[g] == nullptr) continue;
      const uint64_t bytes = parts_.cache.page_bytes(g);
      // Now, not when the task runs: until then another may move the page, or evict it.
      const bool host = slot.node->pages[g].residency.in(Tier::kHost);
      begin_move(*slot.node, g, host ? Move::kHostToDevice : Move::kNvmeToDevice);
      scope_.spawn(fetch(load, position - 1, g, room->split(bytes)));
    }
  }
  if (!load->given_up && scope_.stop().stopped()) give_up(load);
  --loads_;
}

Task<> Tiers::fetch(std::shared_ptr<Load> load, uint32_t position, uint32_t group, Permit permit) {
  Load::Slot& slot = load->at(position);
  DirectoryNode* node = slot.node;
  std::shared_ptr<FillingPage> page = slot.pages[group];
  const bool host = node->pages[group].residency.in(Tier::kHost);
  if (!host) slot.from = Tier::kNvme;
  TransferRate& rate = host ? host_rate_ : nvme_rate_;
  TierStats& stats = host ? host_ : nvme_;
  const uint64_t bytes = permit.units();
  rate.began(parts_.loop.clock().now(), bytes);
  bool good = false;
  if (page == nullptr) {  // given up before this ran
    end_move(*node, group, false);
  } else if (host) {
    good = co_await fetch_from_host(node, group, page);
  } else {
    good = co_await fetch_from_nvme(node, group, page);
  }
  rate.ended(parts_.loop.clock().now(), bytes, good);
  permit.release();
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
  LowerPage& lower = node->pages[group];
  PagePool& pool = host_pools_[group];
  kernels::Stream& stream = parts_.device.copy_in();
  stream.copy(page->data(), pool.data(lower.host_page), pool.page_bytes());
  const std::unique_ptr<kernels::Event> done = parts_.device.make_event();
  stream.record(*done);
  co_await done->wait();
  bool good = true;
  if (options_.verify_all) {
    good = checksum_of({page->data(), pool.page_bytes()}) == lower.host_checksum;
  }
  end_move(*node, group, good);
  if (!good) {
    ++host_.corrupt;
    if (host_pools_[group].pins(lower.host_page) == 0) drop_host(*node, group);
  }
  co_return good;
}

Task<bool> Tiers::fetch_from_nvme(DirectoryNode* node, uint32_t group,
                                  std::shared_ptr<FillingPage> page) {
  LowerPage& lower = node->pages[group];
  const std::span<std::byte> to(page->data(), parts_.cache.page_bytes(group));
  const Result<> read =
      co_await parts_.store->get(lower.slot, lower.generation, to, page, scope_.stop());
  const Clock::TimePoint now = parts_.loop.clock().now();
  end_move(*node, group, read.has_value());
  if (read) {
    breaker_.succeeded();
    co_return true;
  }
  const ErrorCode code = read.error().code;
  if (code == ErrorCode::kCancelled) {
    page->give_up();
    co_return false;
  }
  ++nvme_.errors;
  if (code == ErrorCode::kDeadlineExceeded) {
    page->give_up();  // the read may still land in it
    breaker_.failed(now, true);
  } else if (code == ErrorCode::kCorrupt || code == ErrorCode::kNotFound) {
    ++nvme_.corrupt;
    drop_nvme(*node, group, true);
  } else {
    breaker_.failed(now, false);
  }
  co_return false;
}

// While a load runs its sequence looks again now and then, for a stalled disk tells nothing.
Task<> Tiers::watch(std::shared_ptr<Load> load) {
  while (!load->given_up && !finished(*load)) {
    const Result<> slept = co_await parts_.loop.sleep_for(kWatchPause, scope_.stop());
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
