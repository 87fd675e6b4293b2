// Up the tiers: what is loaded for a sequence, in which order, and where it meets what is computed.
#include <algorithm>
#include <chrono>
#include <utility>

#include "cache/tiers.h"
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
  load->rows_behind = rows_under(static_cast<uint32_t>(tokens.size()) - end * page_tokens);
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
      LowerPage& page = slot.node->pages[g];
      if (needs(*load, position, g) && !page.residency.in(Tier::kHost)) {
        load->bands = std::max(load->bands, page.bands);
      }
      for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
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
  const bool by_bands = worth_bands(*load, compute_price);
  // Unless all is better computed, what is stays in the plan, for the disk may be faster than it
  // was. From the back, as far as there are device pages.
  const uint32_t held = begin + load->planned();
  if (!by_bands && meet(*load, begin, begin, compute_price).page == held) pass(*load, end);
  bool room = true;
  for (uint32_t position = end; position > begin; --position) {
    Load::Slot& slot = load->at(position - 1);
    if (slot.state != Load::State::kPlanned) continue;
    room = room && reserve_pages(*load, position - 1);
    if (!room) drop_slot(*load, slot);
  }
  if (finished(*load)) return nullptr;
  start_load(load, by_bands && room);  // only a whole prefix goes by bands
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
    if (!room && slot.state == Load::State::kPlanned) drop_slot(*load, slot);
  }
  if (load->whole && !room) pass(*load, load->end());
  if (finished(*load)) return nullptr;
  start_load(load, false);
  return load;
}

void Tiers::start_load(const std::shared_ptr<Load>& load, bool by_bands) {
  loads_.push_back(load);
  if (by_bands) {
    start_bands(load);
  } else {
    scope_.spawn(run_load(load));
  }
  scope_.spawn(watch(load));
}

bool Tiers::others_load() const {
  return std::any_of(loads_.begin(), loads_.end(),
                     [this](const auto& load) { return !load->gentle && !finished(*load); });
}

// The planned or moving pages from `begin` on, at the measured rates.
LoadQuestion Tiers::question_of(const Load& load, uint32_t begin) const {
  LoadQuestion question;
  question.page_tokens = parts_.cache.page_tokens();
  question.begin = question.end = begin;
  const Clock::TimePoint now = parts_.loop.clock().now();
  const double host_s = 1 / host_rate_.bytes_per_s(now), nvme_s = 1 / nvme_rate_.bytes_per_s(now);
  double seconds = 0;
  bool uses_host = false, uses_nvme = false;
  for (uint32_t position = begin; position < load.end(); ++position) {
    const Load::Slot& slot = load.at(position);
    if (slot.state != Load::State::kPlanned && slot.state != Load::State::kMoving) continue;
    ++question.end;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      if (!needs(load, position, g)) continue;
      const bool host = slot.node->pages[g].residency.in(Tier::kHost);
      auto bytes = static_cast<double>(parts_.cache.page_bytes(g));
      if (load.by_bands) bytes *= 1 - static_cast<double>(slot.layers[g]) / load.missing[g].size();
      seconds += bytes * (host ? host_s : nvme_s);
      (host ? uses_host : uses_nvme) = true;
    }
  }
  if (question.end == begin) return question;
  question.load_seconds = seconds / (question.end - begin);
  // What others have in flight goes first.
  const auto queued = [&](const TransferRate& rate, Tier tier) {
    return static_cast<double>(rate.in_flight_bytes() - load.in_flight[static_cast<size_t>(tier)]);
  };
  if (uses_host) question.queued_seconds += queued(host_rate_, Tier::kHost) * host_s;
  if (uses_nvme) question.queued_seconds += queued(nvme_rate_, Tier::kNvme) * nvme_s;
  return question;
}

// Where both meet if all in [from, begin) is computed in any case.
Meeting Tiers::meet(const Load& load, uint32_t from, uint32_t begin, double compute_price) const {
  if (options_.load_all) return {.page = begin};
  LoadQuestion question = question_of(load, begin);
  question.gap = begin - from;
  question.compute_price = compute_price;
  return meeting_of(question, compute_rate_);
}

void Tiers::let_go(Load::Slot& slot) {
  DirectoryNode* node = std::exchange(slot.node, nullptr);
  --node->transfers;
  directory_.settle(node);
}

// The sequence will compute this position. What is moving there lands in memory that is nobody's.
void Tiers::drop_slot(Load& load, Load::Slot& slot) {
  const Load::State state = std::exchange(slot.state, Load::State::kAbsent);
  if (state == Load::State::kMoving) {
    for (auto& page : slot.pages) {
      if (page != nullptr) page->give_up();
    }
  }
  if (state == Load::State::kPlanned) let_go(slot);
  left(load, slot);
  slot.pages = {};
}

// Gives up what lies before `position`.
void Tiers::pass(Load& load, uint32_t position) {
  for (uint32_t at = load.begin; at < std::min(position, load.end()); ++at) {
    Load::Slot& slot = load.at(at);
    if (slot.state != Load::State::kAbsent && slot.state != Load::State::kTaken) {
      drop_slot(load, slot);
    }
  }
}

void Tiers::give_up(std::shared_ptr<Load> load) {
  load->given_up = true;
  abandon_step(*load);
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
  if (keeps_to_bands(load, next, compute_price)) return next * page_tokens;
  for (bool again = true;; again = false) {
    uint32_t first = next;
    while (first < load.end() && !pending(load.at(first))) ++first;
    if (first >= load.end()) return UINT32_MAX;
    if (!again) return first * page_tokens;
    // Ready pages wait for nothing; the plan is about those still to come before them.
    if (load.at(first).state == Load::State::kReady && !load.whole) return first * page_tokens;
    const uint32_t computed = meet(load, next, first, compute_price).page - first;
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
    drop_slot(*load, slot);
  }
  progress();
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
