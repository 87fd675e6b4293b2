#include "tiers_driver.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/scope.h"

namespace spillway::cache {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kPage = TestCache::kPageTokens;
constexpr size_t kLiveMax = 6;
constexpr size_t kEndedMax = 5;
constexpr int kSettleSteps = 20'000;

void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}
void require_empty(const std::string& problem) { require(problem.empty(), problem.c_str()); }

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

TiersDriver::TiersDriver(const TiersShape& shape, uint64_t seed)
    : shape_(shape),
      seed_(seed),
      prng_(seed),
      device_(seed),
      parker_(clock_, device_, seed),
      loop_(clock_, parker_) {
  parker_.when_idle = [this] { idle_ = true; };
  open();
}

TiersDriver::~TiersDriver() = default;

Task<> TiersDriver::open_store() {
  io::BlockStoreOptions options;
  options.directory = "store";
  options.bytes = shape_.nvme_bytes;
  options.slot_bytes = {static_cast<uint32_t>(real_->page_bytes(0))};
  options.seed = 1;
  auto opened = co_await io::BlockStore::open(std::move(options), loop_, *disk_);
  if (opened) store_ = std::move(*opened);
}

void TiersDriver::open() {
  CacheShape cache = shape_.cache;
  cache.fingerprint = fingerprint_;
  cache.secret = 77;
  real_ = std::make_unique<TestCache>(cache);
  faulty_ = damaged_;
  if (shape_.nvme_bytes > 0) {
    disk_ = std::make_unique<sim::SimDisk>(loop_, files_, seed_ + opened_);
    parker_.disk = disk_.get();
    run_task(open_store());
    require(store_ != nullptr, "the store does not open");
  }
  ++opened_;
  TiersOptions options;
  options.write = shape_.write;
  options.verify_all = true;
  options.load_bytes_max = shape_.load_bytes_max;
  const size_t staging = shape_.staging_pages * real_->page_bytes(0);
  memory_.push_back(*device_.allocate(staging));
  options.staging = {memory_.back().data, staging};
  for (size_t g = 0; g < shape_.host.size(); ++g) {
    memory_.push_back(*device_.allocate(shape_.host[g] * real_->page_bytes(0)));
    options.host.push_back({memory_.back().data, shape_.host[g]});
  }
  tiers_ = std::make_unique<Tiers>(
      options, Tiers::Parts{loop_, real_->cache(), device_, store_.get()}, [this](uint32_t pages) {
        return make_eviction_policy(shape_.cache.policy, {.capacity = pages});
      });
  tiers_->compute_rate().measured(0, 16, 16e-6 * static_cast<double>(1 + prng_.below(2)));
}

void TiersDriver::run_task(Task<> task) {
  Scope scope(loop_.executor());
  scope.spawn(std::move(task));
  idle_ = false;
  for (int i = 0; scope.running() > 0; ++i) {
    if (!step()) loop_.park();
    require(!idle_ && i < 100 * kSettleSteps, "a task waits for ever");
  }
}

// One piece of work, or the end of one operation. False: only time can go on.
bool TiersDriver::step() {
  check_copies();
  if (loop_.run_one()) return true;
  if (disk_ != nullptr && prng_.below(2) == 0 && disk_->run_one()) return true;
  if (device_.run_one()) return true;
  return disk_ != nullptr && disk_->run_one();
}

// What goes down stays where it is, whole, until it is copied (cases K1, K3); what comes up goes to
// pages that are nobody's (case K4).
void TiersDriver::check_copies() const {
  const KvCache& cache = real_->cache();
  const KvCacheStats stats = cache.stats();
  const auto look = [&](const std::byte* at, const auto& say) {
    for (uint32_t g = 0; g < cache.groups(); ++g) {
      const std::byte* base = cache.page_data(g, PageId{0});
      if (at < base || at >= base + stats.groups[g].capacity * cache.page_bytes(g)) continue;
      say(g, PageId{static_cast<uint32_t>(static_cast<size_t>(at - base) / cache.page_bytes(g))});
    }
  };
  for (const sim::SimStream::Copy& copy : device_.copies_out()) {
    look(copy.from, [&](uint32_t g, PageId page) {
      require(cache.page_state(g, page) == PageState::kSealed, "a page that is copied is open");
      require(cache.page_pins(g, page) > 0, "a page that is copied is not pinned");
    });
  }
  for (const sim::SimStream::Copy& copy : device_.copies_in()) {
    look(copy.to, [&](uint32_t g, PageId page) {
      const PageState state = cache.page_state(g, page);
      require(state == PageState::kFilling || state == PageState::kOrphaned,
              "a copy fills a page that is used");
    });
  }
}

bool TiersDriver::is_quiet() const {
  if (disk_ != nullptr && disk_->stats().in_flight + disk_->stats().queued > 0) return false;
  for (const auto& live : live_) {
    if (live->load != nullptr && !tiers_->finished(*live->load) && live->load->planned() > 0) {
      return false;
    }
  }
  return tiers_->stats().paths_waiting == 0;
}

// What is due in between happens in between.
void TiersDriver::pass_time(Clock::Duration time) {
  const Clock::TimePoint until = clock_.now() + time;
  idle_ = false;
  for (int i = 0; i < kSettleSteps && !idle_ && clock_.now() < until; ++i) {
    if (!step()) loop_.park();
  }
  if (clock_.now() < until) clock_.advance(until - clock_.now());
}

void TiersDriver::settle() {
  idle_ = false;
  for (int i = 0; i < kSettleSteps && !idle_; ++i) {
    if (step()) continue;
    if (is_quiet()) break;
    loop_.park();
  }
  while (loop_.run_one()) {
  }
}

void TiersDriver::begin(const std::string& tenant, const std::vector<TokenId>& prompt,
                        uint8_t price) {
  if (live_.size() >= kLiveMax) return;
  check_match(tenant, prompt);
  auto live = std::make_unique<Live>();
  live->prompt = prompt;
  live->keys = real_->keys(prompt, tenant);
  live->real = real_->begin(prompt, tenant);
  live_.push_back(std::move(live));
  Live& begun = *live_.back();
  begun.load = tiers_->begin_load(begun.keys, prompt, *begun.real.sequence, price_of(price));
}

// The sequence computes what the engine would: up to the pages that are being loaded.
void TiersDriver::compute(Live& live, const TierCommand& command) {
  adopt(live);
  const uint32_t size = live.real.sequence->size();
  uint32_t until = UINT32_MAX;
  if (live.load != nullptr) {
    until = tiers_->compute_until(*live.load, size, price_of(command.a));
  }
  if (until <= size) return;
  if (size == live.prompt.size()) live.prompt.push_back(command.b % 3);
  const size_t end = std::min<size_t>({live.prompt.size(), until, size + 1u + command.c % 70});
  const std::vector<TokenId> rows(live.prompt.begin() + size,
                                  live.prompt.begin() + static_cast<ptrdiff_t>(end));
  real_->extend(live.real, rows, static_cast<uint32_t>(rows.size()));
}

void TiersDriver::adopt(Live& live) {
  if (live.load == nullptr) return;
  const std::vector<TokenId>& tokens = live.prompt;
  if (tiers_->adopt(*live.load, *live.real.sequence, tokens)) {
    const uint32_t size = live.real.sequence->size();
    loaded_pages_ += size / kPage - live.real.tokens.size() / kPage;
    live.real.tokens.assign(tokens.begin(), tokens.begin() + size);
  }
  if (tiers_->finished(*live.load)) give_up(live);
}

void TiersDriver::give_up(Live& live) {
  if (live.load != nullptr) tiers_->give_up(std::exchange(live.load, nullptr));
}

void TiersDriver::fork(Live& live) {
  if (live_.size() >= kLiveMax) return;
  give_up(live);
  TestSequence twin = real_->fork(live.real);
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
  path.keys = real_->keys(path.tokens, live.real.tenant);
  path.session = session;
  path.running = running;
  kept_[{fingerprint_, live.real.tenant}].insert(path.tokens);
  kept_tenant_ = live.real.tenant;
  kept_path_ = path.tokens;
  lost_before_ = lost_pages();
  tiers_->keep(std::move(path));
}

void TiersDriver::release(size_t index, const std::string& session, bool kept) {
  Live& live = *live_[index];
  give_up(live);
  if (kept) keep(live, !session.empty(), false);
  ended_.emplace_back(live.real.tenant, live.real.tokens);
  if (ended_.size() > kEndedMax) ended_.erase(ended_.begin());
  real_->release(std::move(live.real), session);
  live_.erase(live_.begin() + static_cast<ptrdiff_t>(index));
}

void TiersDriver::preempt(size_t index, uint8_t price) {
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
  const bool is_idle = all && is_quiet() && tiers_->stats().loads == 0;
  real_->cache().clear();
  tiers_->clear();
  if (is_idle) {
    require(tiers_->stats().host.pages == 0, "clear: host pages stay");
    require(tiers_->stats().nvme.pages == 0, "clear: pages on NVMe stay");
  }
  clearing_ = !is_idle;
  for (auto& [space, paths] : kept_) {
    if (space.first != fingerprint_) continue;
    erased_[space].insert(paths.begin(), paths.end());
    paths.clear();
  }
}

void TiersDriver::fault(uint8_t kind) {
  if (disk_ == nullptr) return;
  sim::SimDiskFaults& faults = disk_->faults;
  constexpr double kOften = 0.3;
  double* const chances[] = {&faults.read_error,       &faults.write_error, &faults.no_space,
                             &faults.short_read,       &faults.bit_rot,     &faults.torn_write,
                             &faults.lost_write,       &faults.failed_sync, &faults.stall,
                             &faults.misdirected_write};
  const size_t which = kind % (std::size(chances) + 2);
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
  if (crash && disk_ != nullptr) disk_->crash(*crash);
  while (!live_.empty()) release(live_.size() - 1, {}, false);
  run_task(tiers_->close());
  closed_ = tiers_->stats();
  kept_path_.clear();
  closed_well_ = !crash && !faulty_;
  if (store_ != nullptr) {
    run_task(store_->close());
    run_task(disk_->drain());
    require(store_->drained(), "an operation of the store is left");
  }
  require_empty(tiers_->check_integrity());
  stored_pages_ += tiers_->stats().nvme.writes;
  for (const GroupStats& group : real_->cache().stats().groups) {
    require(group.filling + group.orphaned == 0, "a page of a load is left");
  }
  tiers_.reset();
  store_.reset();
  real_.reset();
  parker_.disk = nullptr;
  disk_.reset();
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
  const TiersStats found = tiers_->stats();
  require(found.host.pages == 0, "a host page outlived its process");
  if (store_ == nullptr || !closed_well_) return;
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
    begin(tenant_of(command.a), prompt_of(command.b, command.c), command.a);
  } else if (op == TierOp::kContinue) {
    if (ended_.empty()) return false;
    const auto [tenant, tokens] = ended_[command.a % ended_.size()];
    begin(tenant, joined(tokens, prompt_of(command.b, command.c % 40)), command.a);
  } else if (op == TierOp::kEndSession) {
    real_->cache().end_session(session);
  } else if (op == TierOp::kEvents) {
    for (int i = 0; i <= command.a % 64; ++i) {
      if (!step()) loop_.park();
    }
  } else if (op == TierOp::kTime) {
    pass_time(milliseconds(command.c * command.c));
  } else if (op == TierOp::kSettle) {
    settle();
    check_quiet();
    check_kept_path();
  } else if (op == TierOp::kForget) {
    kept_path_.clear();
    real_->cache().clear();
  } else if (op == TierOp::kClear) {
    clear(command.a % 2 == 0);
  } else if (op == TierOp::kFault) {
    fault(command.a);
  } else if (op == TierOp::kHeal) {
    if (disk_ != nullptr) disk_->faults = {};
  } else if (op == TierOp::kRestart || op == TierOp::kKill) {
    restart(command);
  } else if (live_.empty()) {
    return false;
  } else if (op == TierOp::kStep) {
    compute(*live_[index], command);
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
    preempt(index, command.b);
  } else if (op == TierOp::kKeep) {
    keep(*live_[index], false, true);
  }
  check_all();
  return true;
}

// Pages from the front that lower tiers may have: of paths that were kept there.
uint32_t TiersDriver::known_pages(const std::string& tenant,
                                  const std::vector<TokenId>& tokens) const {
  size_t most = 0;
  for (const auto* known : {&kept_, &erased_}) {
    const auto paths = known->find({fingerprint_, tenant});
    if (paths == known->end() || (known == &erased_ && !clearing_)) continue;
    for (const Path& path : paths->second) {
      const auto length = static_cast<ptrdiff_t>(std::min(path.size(), tokens.size()));
      const auto [end, other] = std::mismatch(path.begin(), path.begin() + length, tokens.begin());
      most = std::max(most, static_cast<size_t>(end - path.begin()) / kPage);
    }
  }
  return static_cast<uint32_t>(most);
}

void TiersDriver::check_match(const std::string& tenant, const std::vector<TokenId>& tokens) {
  if (tokens.empty()) return;
  const PromptKeys keys = real_->keys(tokens, tenant);
  const uint32_t device = real_->cache().match_length(keys, tokens);
  const uint32_t found = tiers_->match_length(keys, tokens, device);
  require(found >= device && found % kPage == 0, "a match that ends within a page");
  require(found < tokens.size(), "a match that leaves nothing to compute");
  require(found == device || found / kPage <= known_pages(tenant, tokens),
          "a match of what was never kept");
}

// Pages that were evicted anywhere, left out, or failed, since this process began.
uint64_t TiersDriver::lost_pages() const {
  const TiersStats stats = tiers_->stats();
  uint64_t lost = stats.paths_dropped;
  for (const TierStats* tier : {&stats.host, &stats.nvme}) {
    lost += tier->evictions + tier->skipped + tier->errors;
  }
  for (const GroupStats& group : real_->cache().stats().groups) lost += group.evicted;
  return lost;
}

// Where nothing has been lost the path that was kept last is found whole. (Of a window only what a
// sequence that goes on has not left behind.)
void TiersDriver::check_kept_path() {
  const bool foreseen = shape_.write == WritePolicy::kAuto && !faulty_ && is_quiet() &&
                        shape_.cache.key_mode == KeyMode::kHash;
  const bool windows = std::any_of(shape_.cache.windows.begin(), shape_.cache.windows.end(),
                                   [](uint32_t window) { return window > 0; });
  if (!foreseen || windows || kept_path_.empty() || lost_pages() != lost_before_) return;
  const std::vector<TokenId> tokens = joined(kept_path_, prompt_of(0, 0));
  const PromptKeys keys = real_->keys(tokens, kept_tenant_);
  require(tiers_->match_length(keys, tokens, 0) == kept_path_.size(), "a kept path is not there");
  ++checked_paths_;
}

// Where no disk has lost anything each page in the store is found through others: that before it,
// and a window's through that of its own place.
void TiersDriver::check_records() {
  if (store_ == nullptr || faulty_ || shape_.cache.windows[0] > 0) return;
  if (tiers_->stats().other_pages > 0) return;  // a kill may have left gaps in these
  std::set<uint64_t> stored;
  store_->for_each([&](const io::StoredPage& page) {
    if (page.name.group == 0) stored.insert(page.name.uid);
  });
  store_->for_each([&](const io::StoredPage& page) {
    const uint64_t before = page.name.group > 0 ? page.name.uid : page.name.parent_uid;
    require(before == 0 || stored.contains(before), "a stored page that nobody finds");
  });
}

// With nothing in flight nothing is under way.
void TiersDriver::check_quiet() {
  if (!is_quiet()) return;
  const TiersStats stats = tiers_->stats();
  if (tiers_->stats().loads == 0) clearing_ = false;
  check_records();
  const uint64_t page_bytes = real_->page_bytes(0);
  require(stats.host.used_bytes == stats.host.pages * page_bytes, "host pages are under way");
  PageCounts held{};
  for (const auto& live : live_) {
    if (live->load == nullptr) continue;
    const PageCounts of = live->load->pages_held();
    for (size_t g = 0; g < held.size(); ++g) held[g] += of[g];
  }
  const KvCacheStats cache = real_->cache().stats();
  for (size_t g = 0; g < cache.groups.size(); ++g) {
    require(cache.groups[g].orphaned == 0, "an orphaned page is left");
    require(cache.groups[g].filling == held[g], "a filling page belongs to no load");
  }
  if (store_ == nullptr || faulty_) return;
  const io::BlockStoreStats store = store_->stats();
  require(store.pages == stats.nvme.pages + stats.other_pages, "the store holds other pages");
  require(store.used_bytes == store.pages * page_bytes, "slots of the store are under way");
}

void TiersDriver::check_all() {
  std::vector<TestSequence*> sequences;
  for (auto& live : live_) sequences.push_back(&live->real);
  require_empty(real_->problem(sequences));
  real_->cache().check_counters();
  require_empty(tiers_->check_integrity());
  if (store_ != nullptr) require_empty(store_->check_integrity());
  for (const auto& [tenant, tokens] : ended_) check_match(tenant, tokens);
  for (const auto& live : live_) {
    check_match(live->real.tenant, joined(live->prompt, prompt_of(0, 0)));
  }
}

// Everything that was kept and is still there is loaded once more and compared; then all is as on
// the first day.
void TiersDriver::finish() {
  if (disk_ != nullptr) disk_->faults = {};
  while (!live_.empty()) release(live_.size() - 1, {}, true);
  settle();
  real_->cache().clear();
  const auto ended = ended_;
  for (const auto& [tenant, tokens] : ended) {
    if (tokens.empty()) continue;
    begin(tenant, joined(tokens, prompt_of(1, 3)), 0);
    settle();
    adopt(*live_.back());
    check_all();
    release(live_.size() - 1, {}, false);
  }
  settle();
  for (int i = 0; i < 3; ++i) real_->cache().end_session("session " + std::to_string(i));
  real_->cache().clear();
  tiers_->clear();
  settle();
  check_quiet();
  const KvCacheStats stats = real_->cache().stats();
  for (const GroupStats& group : stats.groups) {
    require(group.free == group.capacity, "idle is not as the baseline: pages leak");
  }
  require(stats.tree_nodes == 0, "idle is not as the baseline: nodes leak");
  require(tiers_->stats().host.used_bytes == 0, "idle is not as the baseline: host pages leak");
  require(tiers_->stats().nvme.pages == 0, "idle is not as the baseline: stored pages leak");
  require(tiers_->stats().directory_nodes == 0, "idle is not as the baseline: the directory leaks");
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
