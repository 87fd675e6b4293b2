#include "tiers_driver.h"

#include <algorithm>
#include <stdexcept>

namespace spillway::cache {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kPage = TestCache::kPageTokens;
constexpr size_t kLiveMax = 6;
constexpr size_t kEndedMax = 5;
constexpr int kSettleSteps = 20'000;

// Few different pages, so that prompts share prefixes of every length and part at page edges and
// within pages.
std::vector<TokenId> prompt_of(uint8_t pattern, uint8_t length) {
  std::vector<TokenId> tokens(1 + length % (9 * kPage));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t page = i / kPage;
    tokens[i] = static_cast<TokenId>((pattern >> (page % 4)) & 1);
    if (pattern >= 0xc0 && i % kPage == page) tokens[i] += pattern >> 3;
  }
  return tokens;
}

std::string tenant_of(uint8_t a) { return a % 4 == 3 ? "other" : "one"; }
double price_of(uint8_t a) { return 1 + a % 3; }

}  // namespace

void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

TiersDriver::TiersDriver(const TiersShape& shape, uint64_t seed)
    : shape_(shape), prng_(seed), has_faults_(seed % 2 == 0), machine_(shape, seed) {
  open();
}

TiersDriver::~TiersDriver() = default;

void TiersDriver::open() {
  faulty_ = damaged_;
  machine_.open(fingerprint_);
  machine_.before_event = [this] { watch(); };
  machine_.workers().refuse_one_in = has_faults_ ? 16 : 0;
  tiers().compute_rate().measured(0, 16, 16e-6 * static_cast<double>(1 + prng_.below(2)));
}

// What is due in between happens in between.
void TiersDriver::pass_time(Clock::Duration time) {
  const Clock::TimePoint until = machine_.clock().now() + time;
  int steps = 0;
  while (steps < kSettleSteps && machine_.clock().now() < until && machine_.go_on()) ++steps;
  if (machine_.clock().now() < until) machine_.clock().advance(until - machine_.clock().now());
  // Nobody waits longer than that for what is to be written (the bound of tiers.h).
  const bool all_let_go = steps == kSettleSteps || time < milliseconds(300);
  require(all_let_go || !tiers().holds_pages(), "pages are held too long");
}

// Until nothing is under way, and what would be looked at again soon has been (case K16).
void TiersDriver::settle() {
  for (int round = 0; round < 2; ++round) {
    int steps = 0;
    while (steps < kSettleSteps && (machine_.step() || (!is_quiet() && machine_.park()))) ++steps;
    require(is_quiet() || faulty_, "something never ends");
    if (round == 0) pass_time(milliseconds(10));
  }
}

void TiersDriver::begin(const std::string& tenant, const std::vector<TokenId>& prompt,
                        double price) {
  if (live_.size() >= kLiveMax) release(0, {}, true);
  check_match(tenant, prompt);
  auto live = std::make_unique<Live>();
  live->prompt = prompt;
  live->keys = machine_.cache().keys(prompt, tenant);
  live->real = machine_.cache().begin(prompt, tenant);
  live_.push_back(std::move(live));
  Live& begun = *live_.back();
  begun.load = tiers().begin_load(begun.keys, prompt, *begun.real.sequence, price);
}

// The sequence computes what the engine would: up to the pages that are being loaded. False: there
// are no pages for that.
bool TiersDriver::compute(Live& live, const TierCommand& command) {
  adopt(live);
  const uint32_t size = live.real.sequence->size();
  uint32_t until = UINT32_MAX;
  if (live.load != nullptr) {
    until = tiers().compute_until(*live.load, size, price_of(command.a));
  }
  if (until <= size) return true;
  if (size == live.prompt.size()) live.prompt.push_back(command.b % 3);
  const size_t rows_max = command.c < 128 ? 1u + command.c % 70 : live.prompt.size();
  const size_t end = std::min<size_t>({live.prompt.size(), until, size + rows_max});
  const std::vector<TokenId> rows(live.prompt.begin() + size,
                                  live.prompt.begin() + static_cast<ptrdiff_t>(end));
  return machine_.cache().extend(live.real, rows, static_cast<uint32_t>(rows.size()));
}

// As the engine does without pages: first those that wait to be written are let go, then it swaps.
void TiersDriver::step(size_t index, const TierCommand& command) {
  if (compute(*live_[index], command)) return;
  if (!tiers().holds_pages()) return preempt(index, price_of(command.b));
  kept_path_.clear();
  tiers().let_go_of_holds();
}

void TiersDriver::adopt(Live& live) {
  if (live.load == nullptr) return;
  const std::vector<TokenId>& tokens = live.prompt;
  if (tiers().adopt(*live.load, *live.real.sequence, tokens)) {
    const uint32_t size = live.real.sequence->size();
    require(size < tokens.size(), "K13: nothing is left to compute");
    loaded_pages_ += size / kPage - live.real.tokens.size() / kPage;
    live.real.tokens.assign(tokens.begin(), tokens.begin() + size);
  }
  if (tiers().finished(*live.load)) give_up(live);
}

void TiersDriver::give_up(Live& live) {
  if (live.load != nullptr) tiers().give_up(std::exchange(live.load, nullptr));
}

void TiersDriver::fork(Live& live) {
  if (live_.size() >= kLiveMax) return;
  give_up(live);
  TestSequence twin = machine_.cache().fork(live.real);
  if (twin.sequence == nullptr) return;
  auto made = std::make_unique<Live>();
  made->real = std::move(twin);
  made->prompt = live.prompt;
  made->keys = live.keys;
  live_.push_back(std::move(made));
}

void TiersDriver::keep(Live& live, bool session, bool running) {
  const size_t whole = live.real.tokens.size() / kPage * kPage;
  if (whole == 0) return;
  KeptPath path;
  path.tokens.assign(live.real.tokens.begin(),
                     live.real.tokens.begin() + static_cast<ptrdiff_t>(whole));
  path.keys = machine_.cache().keys(path.tokens, live.real.tenant);
  path.session = session;
  path.running = running;
  kept_[{fingerprint_, live.real.tenant}].insert(path.tokens);
  kept_tenant_ = live.real.tenant;
  kept_path_ = clearing_ ? Path{} : path.tokens;  // what a reset still means may be part of it
  kept_running_ = running;
  lost_before_ = lost_pages();
  tiers().keep(std::move(path));
}

void TiersDriver::release(size_t index, const std::string& session, bool kept) {
  Live& live = *live_[index];
  give_up(live);
  if (kept) keep(live, !session.empty(), false);
  ended_.emplace_back(live.real.tenant, live.real.tokens);
  if (ended_.size() > kEndedMax) ended_.erase(ended_.begin());
  machine_.cache().release(std::move(live.real), session);
  live_.erase(live_.begin() + static_cast<ptrdiff_t>(index));
}

void TiersDriver::preempt(size_t index, double price) {
  const std::string tenant = live_[index]->real.tenant;
  const std::vector<TokenId> prompt = live_[index]->prompt;
  give_up(*live_[index]);
  keep(*live_[index], false, true);
  release(index, {}, false);
  begin(tenant, prompt, price);
}

// What no transfer names is gone from the lower tiers: where nothing is under way, everything.
void TiersDriver::clear(bool all) {
  kept_path_.clear();
  if (all) settle();
  const bool is_idle = all && is_quiet() && tiers().stats().loads == 0;
  cache().clear();
  tiers().clear();
  if (is_idle) {
    require(tiers().stats().host.pages == 0, "clear: host pages stay");
    require(tiers().stats().nvme.pages == 0, "clear: pages on NVMe stay");
  }
  clearing_ = !is_idle;
  for (auto& [space, paths] : kept_) {
    if (space.first != fingerprint_) continue;
    erased_[space].insert(paths.begin(), paths.end());
    paths.clear();
  }
}

void TiersDriver::fault(uint8_t kind) {
  if (machine_.disk() == nullptr || !has_faults_) return;
  sim::SimDiskFaults& faults = machine_.disk()->faults;
  constexpr double kOften = 0.3;
  double* const chances[] = {&faults.read_error,        &faults.write_error, &faults.no_space,
                             &faults.short_read,        &faults.bit_rot,     &faults.torn_write,
                             &faults.lost_write,        &faults.failed_sync, &faults.stall,
                             &faults.misdirected_write, &faults.stall,       &faults.stall};
  const size_t which = kind % (std::size(chances) + 2);
  faults.stall_time = std::chrono::seconds(30);  // longer than anyone waits
  if (which < std::size(chances)) {
    *chances[which] = kOften;
    faulty_ = true;
    // What a disk has stored wrongly the next process finds.
    damaged_ |= which == 4 || which == 5 || which == 6 || which == 9;
  } else if (which == std::size(chances)) {
    faults.latency_max = milliseconds(2);
  } else {
    faults.bytes_per_s = 20e6;
  }
}

void TiersDriver::close(std::optional<sim::Crash> crash) {
  if (crash && machine_.disk() != nullptr) machine_.disk()->crash(*crash);
  while (!live_.empty()) release(live_.size() - 1, {}, false);
  kept_path_.clear();
  closed_well_ = !crash && !faulty_;
  machine_.close([this] {
    closed_ = tiers().stats();
    stored_pages_ += closed_.nvme.writes;
    const std::string problem = tiers().check_integrity();
    require(problem.empty(), problem.c_str());
    for (const GroupStats& group : cache().stats().groups) {
      require(group.filling + group.orphaned == 0, "a page of a load is left");
    }
  });
}

void TiersDriver::restart(const TierCommand& command) {
  std::optional<sim::Crash> crash;
  if (command.op == TierOp::kKill) {
    crash = command.b % 3 == 0 ? sim::Crash::kPower : sim::Crash::kProcess;
  }
  close(crash);
  const bool same = command.a % 4 != 0;
  // What was erased may come back where that was not durable yet.
  for (const auto& [space, paths] : erased_) {
    if (!closed_well_) kept_[space].insert(paths.begin(), paths.end());
  }
  erased_.clear();
  clearing_ = false;
  if (!same) fingerprint_ = fingerprint_ == "test model" ? "another" : "test model";
  open();
  check_records();
  const TiersStats found = tiers().stats();
  require(found.host.pages == 0, "a host page outlived its process");
  if (machine_.store() == nullptr || !closed_well_) return;
  const bool chained = shape_.cache.windows[0] == 0;
  const uint64_t own = same ? closed_.nvme.pages : closed_.other_pages;
  const uint64_t others = same ? closed_.other_pages : closed_.nvme.pages;
  require(found.other_pages == others, "restart: other models' pages differ");
  if (chained && same) require(found.nvme.pages == own, "restart: pages are lost");
  require(found.nvme.pages <= own, "restart: pages from nowhere");
}

bool TiersDriver::run(const TierCommand& command) {
  const size_t index = live_.empty() ? 0 : command.a % live_.size();
  const std::string session = "session " + std::to_string(command.b % 3);
  const TierOp op = command.op;
  if (op == TierOp::kBegin) {
    begin(tenant_of(command.a), prompt_of(command.b, command.c), price_of(command.a));
  } else if (op == TierOp::kContinue) {
    if (ended_.empty()) return false;
    const auto [tenant, tokens] = ended_[command.a % ended_.size()];
    begin(tenant, joined(tokens, prompt_of(command.b, command.c % 40)), price_of(command.a));
  } else if (op == TierOp::kEndSession) {
    cache().end_session(session);
  } else if (op == TierOp::kEvents) {
    for (int i = 0; i <= command.a % 64; ++i) {
      machine_.go_on();
    }
  } else if (op == TierOp::kTime) {
    pass_time(milliseconds(command.c * command.c));
  } else if (op == TierOp::kSettle) {
    settle();
    check_quiet();
    check_kept_path();
  } else if (op == TierOp::kForget) {
    kept_path_.clear();
    cache().clear();
  } else if (op == TierOp::kClear) {
    clear(command.a % 4 == 0);
  } else if (op == TierOp::kFault) {
    fault(command.a);
  } else if (op == TierOp::kHeal) {
    if (machine_.disk() != nullptr) machine_.disk()->faults = {};
  } else if (op == TierOp::kRestart || op == TierOp::kKill) {
    restart(command);
  } else if (live_.empty()) {
    return false;
  } else if (op == TierOp::kStep) {
    step(index, command);
  } else if (op == TierOp::kAdopt) {
    adopt(*live_[index]);
  } else if (op == TierOp::kGiveUp) {
    give_up(*live_[index]);
  } else if (op == TierOp::kFork) {
    fork(*live_[index]);
  } else if (op == TierOp::kRelease) {
    release(index, {}, true);
  } else if (op == TierOp::kDrop) {
    release(index, {}, false);
  } else if (op == TierOp::kHold) {
    release(index, session, true);
  } else if (op == TierOp::kPreempt) {
    preempt(index, price_of(command.b));
  } else if (op == TierOp::kKeep) {
    keep(*live_[index], false, true);
  }
  check_all();
  return true;
}

// Everything that was kept and is still there is loaded once more and compared; then all is as on
// the first day.
void TiersDriver::finish() {
  if (machine_.disk() != nullptr) machine_.disk()->faults = {};
  machine_.workers().refuse_one_in = 0;
  while (!live_.empty()) release(live_.size() - 1, {}, true);
  settle();
  cache().clear();
  const auto ended = ended_;
  for (const auto& [tenant, tokens] : ended) {
    if (tokens.empty()) continue;
    const std::vector<TokenId> prompt = joined(tokens, prompt_of(1, 3));
    const uint32_t found = tiers().match_length(machine_.cache().keys(prompt, tenant), prompt,
                                                machine_.cache().match_length(prompt, tenant));
    begin(tenant, prompt, 1e9);  // so dear to compute that all is loaded
    settle();
    adopt(*live_.back());
    // Host memory may have gaps, which are to be computed where there are no windows.
    const bool whole = has_windows() || shape_.host.empty();
    const uint32_t size = live_.back()->real.sequence->size();
    require(faulty_ || !whole || size == found, "what was found does not load");
    check_all();
    release(live_.size() - 1, {}, false);
  }
  settle();
  for (int i = 0; i < 3; ++i) cache().end_session("session " + std::to_string(i));
  cache().clear();
  tiers().clear();
  settle();
  check_baseline();
  close({});
}

TiersRun run_tier_commands(const TiersShape& shape, std::span<const TierCommand> commands) {
  TiersRun run;
  std::unique_ptr<TiersDriver> driver;
  std::string context = "at the start: ";
  try {
    driver = std::make_unique<TiersDriver>(shape, commands.size());
    for (size_t i = 0; i < commands.size(); ++i) {
      context = "after command " + std::to_string(i) + ": ";
      driver->run(commands[i]);
    }
    context = "at the end: ";
    driver->finish();
    run.loaded = driver->loaded_pages();
    run.stored = driver->stored_pages();
    run.checked_paths = driver->checked_paths();
  } catch (const std::logic_error& error) {
    static_cast<void>(driver.release());
    run.problem = context + error.what();
  }
  return run;
}

}  // namespace spillway::cache
