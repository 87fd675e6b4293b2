// Loads by bands of layers, and the step that computes its first layers while later ones of its
// prefix still come: layer N runs when every page of the prefix has it.
//
// The order of bands comes from the load's turn to ask for room in flight: first come, first
// served, so that a page asks for its next band behind the same band of all others. Who has the
// turn waits for room beside other loads, each of which has one in the queue. What the step may
// look at is told by a gate for each layer group, raised only by bands that have been verified. A
// band that fails, or is late, abandons the gates: the step leaves out what is behind them, and its
// outcome is thrown away, for its pages were never the sequence's.
//
// Why no step waits for ever: the compute stream waits for a gate, and the engine, which never
// waits for the stream other than by an event, raises it. Each fetch of the load ends by arriving,
// which raises the gate, or by failing, which abandons it (fetch()); where one takes longer than
// planned, watch_step() abandons it after twice the plan and kLateness, at most kPatienceMax, by a
// timer that only the end of the step can stop. No read's deadline, no breaker, no cancelled
// request and no closing of the tiers has to happen for that. A cancelled request, a reset and a
// shutdown are looked at between steps, so what they find is a load without a step; its reads are
// then cancelled as any other load's, and its pages are orphans until the disk has let go of them.
//
// Why nobody else waits for it: such a step holds that sequence alone, and begins only while every
// other that runs waits for its own load (StepLoop::offer_under_load()). Who comes in meanwhile
// waits for the step's end, as for any other's: at most three times the step's own time and
// kLateness, since it begins only where the load should end before the step does
// (may_begin_under_load()), and waits twice as long at most before it computes the rest.
//
// Sketch, SmolLM2: 375 pages of 6,000 tokens, 8 bands of 45 KiB; at 1.5 GB/s 11 ms a band, 90 ms in
// all. A step of 512 rows behind them takes 150 ms: it begins after 11 ms instead of 90.
#include <algorithm>
#include <chrono>
#include <utility>

#include "cache/tiers.h"
#include "runtime/check.h"

namespace spillway::cache {
namespace {

// A step waits for its layers twice as long as planned and this, then it was in vain.
constexpr std::chrono::milliseconds kLateness(10);
constexpr std::chrono::seconds kPatienceMax(2);
constexpr double kReadsInFlight = 64;  // that disks take at once, at least

}  // namespace

// Whether all of a load that is just planned should come by bands. While others compute no step
// would run under it.
bool Tiers::worth_bands(const Load& load, double compute_price) const {
  if (options_.bands == BandLoads::kOff || options_.load_all) return false;
  if (options_.bands == BandLoads::kAuto && compute_price > 1) return false;
  for (uint32_t position = load.begin; position < load.end(); ++position) {
    const Load::Slot& slot = load.at(position);
    if (slot.state != Load::State::kPlanned) return false;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      if (!needs(load, position, g)) continue;
      const LowerPage& page = slot.node->pages[g];
      if (page.codec != 0) return false;  // encoded pages come whole
      if (page.residency.in(Tier::kHost)) continue;
      if (page.residency.move() != Move::kNone) return false;  // just being read for another
    }
  }
  if (load.bands < 2) return false;
  if (options_.bands == BandLoads::kAlways) return true;
  // By bands all pages come at the end: so that has to pay at the rate that was measured, whatever
  // is hoped for since.
  BandsQuestion question = bands_question(load, load.begin, compute_price);
  const double hoped = nvme_rate_.bytes_per_s(parts_.loop.clock().now());
  question.load_seconds *= std::max(hoped / nvme_rate_.measured_bytes_per_s(), 1.0);
  return bands_pay(question);
}

// Whether a load by bands goes on as planned: its sequence, which has all before `begin`, waits for
// it, and computes none of it.
bool Tiers::keeps_to_bands(const Load& load, uint32_t begin, double compute_price) const {
  if (!load.by_bands || load.in_vain || compute_price > 1) return false;
  if (begin >= load.end() || !all_come(load, begin)) return false;
  return options_.bands == BandLoads::kAlways ||
         bands_still_pay(bands_question(load, begin, compute_price));
}

BandsQuestion Tiers::bands_question(const Load& load, uint32_t begin, double compute_price) const {
  const uint32_t position = load.end() * parts_.cache.page_tokens();
  LoadQuestion question = question_of(load, begin);
  question.compute_price = compute_price;
  return {.bands = load.bands,
          .load_seconds = seconds_by_bands(load, begin, question.seconds()),
          .compute_seconds = compute_seconds(position, load.rows_behind),
          .otherwise_seconds = meeting_of(question, compute_rate_).seconds};
}

// Smaller reads, a page's one after the other: where a read takes long however small it is, bands
// are slower than the rate says.
double Tiers::seconds_by_bands(const Load& load, uint32_t begin, double at_rate) const {
  double pages = 0, reads = 0;
  for (uint32_t position = begin; position < load.end(); ++position) {
    const Load::Slot& slot = load.at(position);
    if (slot.state != Load::State::kPlanned && slot.state != Load::State::kMoving) continue;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      const LowerPage& page = slot.node->pages[g];
      if (!needs(load, position, g) || page.residency.in(Tier::kHost)) continue;
      ++pages;
      const double there = load.by_bands ? slot.layers[g] : 0;
      reads += page.bands * (1 - there / parts_.cache.layout(g).layers);
    }
  }
  if (pages == 0) return at_rate;
  const double rounds = std::max(reads / pages, reads / kReadsInFlight);
  return std::max(at_rate, rounds * nvme_latency_s_);
}

// The least of all, forgotten slowly: a disk may become slower.
void Tiers::read_took(Clock::Duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  const bool least = nvme_latency_s_ == 0 || seconds < nvme_latency_s_;
  nvme_latency_s_ = least ? seconds : nvme_latency_s_ + 1e-4 * (seconds - nvme_latency_s_);
}

// Whether no page from `begin` on is missing for good.
bool Tiers::all_come(const Load& load, uint32_t begin) {
  return std::all_of(
      load.slots.begin() + (begin - load.begin), load.slots.end(), [](const Load::Slot& slot) {
        return !slot.failed &&
               (slot.state == Load::State::kMoving || slot.state == Load::State::kReady);
      });
}

// All moves begin at once; their fetches wait for room in flight one behind the other.
void Tiers::start_bands(const std::shared_ptr<Load>& load) {
  load->by_bands = true;
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    const auto pages = std::count_if(load->slots.begin(), load->slots.end(),
                                     [g](const auto& slot) { return slot.pages[g] != nullptr; });
    load->missing[g].assign(parts_.cache.layout(g).layers, static_cast<uint32_t>(pages));
  }
  Permit none;
  for (uint32_t position = load->end(); position > load->begin; --position) {
    start_moves(load, position - 1, none, none);
  }
}

// The slot's page of the group has its first `layers` now.
void Tiers::arrived(Load& load, Load::Slot& slot, uint32_t group, uint32_t layers) {
  if (!load.by_bands || slot.pages[group] == nullptr) return;
  std::vector<uint32_t>& missing = load.missing[group];
  const uint32_t before = load.layers_there(group);
  uint32_t& there = slot.layers[group];
  for (; there < std::min<size_t>(layers, missing.size()); ++there) {
    CHECK(missing[there] > 0);
    --missing[there];
  }
  const uint32_t after = load.layers_there(group);
  if (after == before) return;
  if (load.under != nullptr) {
    load.under->gates[group]->raise(after);
  } else {
    progress();  // a step may begin
  }
}

// The slot's pages do not count any more.
void Tiers::left(Load& load, Load::Slot& slot) {
  if (!load.by_bands) return;
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (slot.pages[g] == nullptr) continue;
    for (uint32_t& there = slot.layers[g]; there < load.missing[g].size(); ++there) {
      CHECK(load.missing[g][there] > 0);
      --load.missing[g][there];
    }
  }
}

double Tiers::load_seconds_left(const Load& load, uint32_t begin) const {
  return question_of(load, begin).seconds();
}

// At most what others' loads put before it: all take turns.
double Tiers::others_seconds_left(const Load& load) const {
  double seconds = 0;
  for (const auto& other : loads_) {
    if (other.get() == &load || finished(*other)) continue;
    const LoadQuestion question = question_of(*other, other->begin);
    seconds += question.load_seconds * (question.end - question.begin);
  }
  return seconds;
}

double Tiers::compute_seconds(uint32_t position, uint32_t rows) const {
  return std::max(compute_rate_.step_seconds(), compute_rate_.seconds_per_token(position) * rows);
}

bool Tiers::may_run_under(const Load& load, const Sequence& sequence, uint32_t rows) const {
  if (!load.by_bands || load.in_vain || load.given_up || rows == 0) return false;
  CHECK(load.under == nullptr);
  const uint32_t page_tokens = parts_.cache.page_tokens();
  const uint32_t begin = sequence.size() / page_tokens;
  if (sequence.size() % page_tokens != 0 || !parts_.cache.can_adopt(sequence)) return false;
  if (begin < load.begin || begin >= load.end()) return false;
  if (!all_come(load, begin)) return false;
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (load.layers_there(g) == 0) return false;
  }
  if (options_.bands == BandLoads::kAlways) return true;
  const double compute_s = compute_seconds(load.end() * page_tokens, rows);
  return may_begin_under_load(
      {.bands = load.bands,
       .load_seconds = load_seconds_left(load, begin) + others_seconds_left(load),
       .compute_seconds = compute_s});
}

std::shared_ptr<StepUnderLoad> Tiers::begin_step_under(std::shared_ptr<Load> load,
                                                       const Sequence& sequence, uint32_t rows) {
  CHECK(load->under == nullptr);
  const uint32_t page_tokens = parts_.cache.page_tokens();
  const uint32_t begin = sequence.size() / page_tokens;
  auto step = std::make_shared<StepUnderLoad>();
  step->position = load->end() * page_tokens;
  step->written.resize((rows + page_tokens - 1) / page_tokens);
  for (StepUnderLoad::Pages& pages : step->written) {
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      const PageId page = parts_.cache.begin_filling(g);
      if (page == kNoPage) return nullptr;
      pages[g] = std::make_shared<FillingPage>(parts_.cache, g, page);
    }
  }
  for (uint32_t position = begin; position < load->end(); ++position) {
    step->read.push_back(load->at(position).pages);
  }
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    const auto before = sequence.table(g);
    std::vector<PageId>& table = step->tables[g];
    table.assign(before.begin(), before.end());
    CHECK(table.size() == begin);
    for (const auto* pages : {&step->read, &step->written}) {
      for (const StepUnderLoad::Pages& page : *pages) {
        table.push_back(page[g] == nullptr ? kNoPage : page[g]->id());
      }
    }
    step->gates[g] = parts_.device.make_gate();
    step->gates[g]->raise(load->layers_there(g));
  }
  load->under = step;
  ++steps_under_load_;
  const std::chrono::duration<double> most = kPatienceMax;
  const double left_s = load_seconds_left(*load, begin) + others_seconds_left(*load);
  const double patience_s = std::min(2 * left_s, most.count());
  const std::chrono::duration<double> patience(patience_s);
  scope_.spawn(
      watch_step(load, step, std::chrono::duration_cast<Clock::Duration>(patience) + kLateness));
  return step;
}

bool Tiers::end_step_under(Load& load, Sequence& sequence, std::span<const TokenId> tokens) {
  const std::shared_ptr<StepUnderLoad> step = std::exchange(load.under, nullptr);
  CHECK(step != nullptr);
  step->over.stop();
  step->read.clear();
  std::vector<StepUnderLoad::Pages> written = std::exchange(step->written, {});
  const uint32_t page_tokens = parts_.cache.page_tokens();
  bool good = true;
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) good &= !step->gates[g]->abandoned();
  if (!good) {
    load.in_vain = true;
    ++steps_in_vain_;
    return false;
  }
  const bool taken = adopt(load, sequence, tokens);
  CHECK(taken);
  CHECK(sequence.size() == load.end() * page_tokens);
  std::vector<PageSet> pages;
  for (StepUnderLoad::Pages& page : written) {
    PageSet set{kNoPage, kNoPage};
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) set[g] = page[g]->take();
    pages.push_back(set);
  }
  parts_.cache.reserve_filled(sequence, pages);
  return true;
}

void Tiers::abandon_step(Load& load) {
  if (load.under == nullptr) return;
  for (const auto& gate : load.under->gates) {
    if (gate != nullptr) gate->abandon();
  }
}

Task<> Tiers::watch_step(std::shared_ptr<Load> load, std::shared_ptr<StepUnderLoad> step,
                         Clock::Duration patience) {
  const Result<> slept = co_await parts_.loop.sleep_for(patience, step->over);
  const bool all_there = [&] {
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      if (load->layers_there(g) < load->missing[g].size()) return false;
    }
    return true;
  }();
  if (slept && load->under == step && !all_there) abandon_step(*load);
}

}  // namespace spillway::cache
