// A world for tests of the engine: the real step loop, policy, cache, tiers and store over a
// simulated device, disk and clock, a fake model whose KV bytes name their tokens, and random
// clients, all from one seed.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "cache/tiers.h"
#include "io/block_store.h"
#include "runtime/prng.h"
#include "runtime/scope.h"
#include "scheduler/pools.h"
#include "scheduler/step_loop.h"
#include "tests/scheduler/operations_watch.h"
#include "tests/scheduler/sim_client.h"
#include "tests/scheduler/world_options.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_workers.h"

namespace spillway::scheduler {

class World {
 public:
  explicit World(WorldOptions options)
      : options_(options),
        rng_(options.seed),
        device_(options.seed),
        used_(options.device != nullptr ? *options.device : device_),
        runner_(used_, options.window, options.context, options.layers),
        parker_(clock_, device_),
        loop_(clock_, parker_) {
    device_.gates = options.gates;
    device_.own_memory = options.own_memory;
    if (options.device != nullptr) parker_.run_device = options.run_device;
    PolicyOptions policy;
    policy.sequences_max = options.sequences;
    policy.step_tokens_max = options.step_tokens;
    policy.mixed_prefill_max = options.step_tokens / 2;
    EngineOptions engine;
    engine.context_tokens_max = options.context;
    engine.sequences_max = options.sequences;
    engine.waiting_max = 1000;
    engine.preempt_every_steps = options.preempt_every;
    engine.prefix_caching = options.prefix_caching;
    engine.take_turns = options.take_turns;
    engine.control_thrash = options.control_thrash;
    engine.pin_tenants = options.pin_tenants;
    cache::KvCacheOptions cache;
    cache.fingerprint = options.fingerprint;
    cache.prefix_caching = options.prefix_caching;
    cache.key_mode = options.key_mode;
    cache.pinned_share_max = options.pin_share;
    if (options.files != nullptr) {
      disk_ = std::make_unique<sim::SimDisk>(loop_, *options.files, options.seed);
      parker_.disk = disk_.get();
      parker_.when_idle = nullptr;
      loop_.run(open_store());
      disk_->faults = options.faults;
      if (store_ != nullptr) cache.secret = store_->secret();
    }
    std::vector<std::byte*> bases;
    std::vector<OperationsWatch::Pool> pools;
    for (const auto& layout : runner_.shape().groups) {
      memory_.push_back(*used_.allocate(options.pages * layout.page_bytes()));
      bases.push_back(memory_.back().data);
      pools.push_back({bases.back(), layout.page_bytes(), options.pages});
      cache.groups.push_back({layout, memory_.back().data, options.pages});
    }
    runner_.bind_pages(bases);
    cache_ = std::make_unique<cache::KvCache>(
        std::move(cache),
        cache::make_eviction_policy(options.eviction_policy, {.capacity = options.pages}));
    if (options.watch_operations) watch_.emplace(*cache_, device_, runner_, std::move(pools));
    if (options.host_pages > 0 || store_ != nullptr) make_tiers();
    if (options.trace) loop_.trace().hold();
    steps_ = std::make_unique<StepLoop>(
        engine, policy,
        StepLoop::Parts{loop_, *cache_, runner_, used_, tokenizer_, bases, tiers_.get()});
  }

  std::shared_ptr<Client> submit(Request request) {
    const std::string& error = options_.device_error;
    auto client = error.empty() ? std::make_shared<Client>(request, clock_)
                                : std::make_shared<Client>(request, clock_, error);
    auto live = std::make_unique<LiveRequest>();
    live->id = static_cast<RequestId>(++last_id_);
    live->arrived = clock_.now();
    live->sink = client;
    live->request = std::move(request);
    auto first = std::make_unique<LiveSequence>();
    first->request = live.get();
    first->tokens = live->request.prompt;
    first->keys = cache_->keys(live->request.tenant, live->request.cache_salt, first->tokens);
    live->sequences.push_back(std::move(first));
    steps_->open_requests().fetch_add(1);
    EXPECT_TRUE(steps_->push(SubmitCommand{std::move(live)}));
    clients_.push_back(client);
    return client;
  }

  // Random clients until `steps` steps have run, or for a while behind the device's end; then
  // everything must drain.
  void run_random(uint64_t steps) {
    const uint64_t end = steps_->stats().steps + steps;
    parker_.before_park = [this, end] {
      if (++parks_ > kParksMax) never_ends();
      watch();
      if (parks_to_live_ && (*parks_to_live_)-- == 0) {
        parks_to_live_.reset();
        disk_->crash(sim::Crash::kProcess);
      }
      clock_.advance(std::chrono::microseconds(rng_.below(500)) + options_.step_time);
      const bool happens = rng_.below(options_.looks_an_event) == 0;
      if (!seen_enough(end) && happens) random_event();
      if (rng_.below(16) == 0) check();
      // A disk that is set aside is probed for ever: no timer is left to wait for but that.
      const bool over = seen_enough(end) && steps_->open_requests().load() == 0;
      if (over && !std::exchange(told_to_end_, true)) steps_->push(ShutDownCommand{});
    };
    parker_.when_idle = [this, end] {
      if (!seen_enough(end)) {
        submit(random_request());
      } else if (!std::exchange(told_to_end_, true)) {
        steps_->push(ShutDownCommand{});
      }
    };
    loop_.run(steps_->run());
    settle();
  }

  // Does `then` after so many steps, in the middle of one; then runs until nothing is left to do.
  void run_steps_then(uint64_t steps, std::function<void()> then) {
    parker_.before_park = [this, steps, then] {
      watch();
      if (steps_->stats().steps == steps && !then_done_) {
        then_done_ = true;
        then();
      }
    };
    parker_.when_idle = [this] {
      sessions_at_end_ = cache_->stats().sessions;
      steps_->push(ShutDownCommand{});
    };
    loop_.run(steps_->run());
    settle();
  }
  // Does the first of `stages`, runs until all requests are done, does the next, ...
  void run_stages(std::vector<std::function<void()>> stages) {
    parker_.before_park = [this] { clock_.advance(options_.step_time); };
    parker_.when_idle = nullptr;
    loop_.run(run_driven(std::move(stages)));
    settle();
  }
  // The same, each stage once nothing at all is left to do, timers included.
  void run_idle_stages(std::vector<std::function<void()>> stages) {
    size_t next = 0;
    parker_.before_park = [this] {
      clock_.advance(options_.step_time);
      if (then_ && condition_()) std::exchange(then_, nullptr)();
    };
    parker_.when_idle = [&] { next_stage(stages, next); };
    loop_.run(steps_->run());
    settle();
  }
  SimulatedClock& clock() { return clock_; }
  uint64_t sessions_at_end() const { return sessions_at_end_; }

  // Until nothing is left to do.
  void run_to_end(std::function<void()> before_park = [] {}) {
    parker_.before_park = [this, before_park] {
      watch();
      before_park();
      clock_.advance(options_.step_time);
    };
    parker_.when_idle = [this] { steps_->push(ShutDownCommand{}); };
    loop_.run(steps_->run());
    settle();
  }

  // Does `then` when the condition holds for the first time, in a run of idle stages.
  void when(std::function<bool()> condition, std::function<void()> then) {
    condition_ = std::move(condition);
    then_ = std::move(then);
  }
  void settle() {
    if (disk_ != nullptr && !options_.faults_to_the_end) disk_->faults = {};
    check();
    if (tiers_ != nullptr) {
      loop_.run(close_tiers());
      check();
    }
    if (options_.trace) {
      timeline_ = loop_.trace().snapshot({}, clock_.now());
      loop_.trace().release();
    }
    for (const auto& client : clients_) client->verify(tokenizer_);
    EXPECT_EQ(runner_.wrong(), 0u);
    EXPECT_EQ(steps_->open_requests().load(), 0u);
    for (uint32_t i = 0; i < 4; ++i) cache_->end_session("session " + std::to_string(i));
    cache_->clear();
    check();
    if (tiers_ != nullptr) {
      tiers_stats_ = tiers_->stats();
      if (options_.clear_at_end) tiers_->clear();
    }
    if (store_ != nullptr) {
      loop_.run(close_store());  // what the disk still held is given back
      if (options_.clear_at_end) tiers_->clear();
    }
    const cache::KvCacheStats stats = cache_->stats();
    for (const auto& group : stats.groups) EXPECT_EQ(group.free, group.capacity);
    EXPECT_EQ(stats.sequences, 0u);
    EXPECT_EQ(stats.tree_nodes, 0u);
    if (tiers_ != nullptr && options_.clear_at_end) {
      EXPECT_EQ(tiers_->stats().host.used_bytes, 0u);
      EXPECT_EQ(tiers_->stats().directory_nodes, 0u);
    }
    tiers_.reset();
    store_.reset();
  }

  // Where a run goes on for ever: says what it is about, and ends the process.
  [[noreturn]] void never_ends() const {
    const EngineStats stats = steps_->stats();
    std::fprintf(stderr,
                 "the run does not end: seed %llu, %llu steps, %u running, %u waiting, "
                 "%llu preemptions, %llu turns, %llu tokens\n",
                 static_cast<unsigned long long>(options_.seed),
                 static_cast<unsigned long long>(stats.steps), stats.running, stats.waiting,
                 static_cast<unsigned long long>(stats.preemptions),
                 static_cast<unsigned long long>(stats.turns),
                 static_cast<unsigned long long>(stats.generated_tokens));
    for (const PoolStats& pool : stats.pools) {
      std::fprintf(stderr,
                   "  %u pages: %u free, %u writable, %u sealed, %u pinned, %u filling, "
                   "%u orphaned\n",
                   pool.capacity, pool.free, pool.writable, pool.sealed, pool.pinned, pool.filling,
                   pool.orphaned);
    }
    std::abort();
  }

  void cancel(RequestId request) {
    steps_->push(CancelCommand{request});
    cancel_waits_ = runner_.enqueued() != nullptr;
    watch();
  }

  void check() {
    ASSERT_EQ(cache_->check_integrity(), "");
    if (tiers_ != nullptr) ASSERT_EQ(tiers_->check_integrity(), "");
    if (store_ != nullptr) ASSERT_EQ(store_->check_integrity(), "");
  }

  // After so many looks at the disk this process is cut off from it, as by kill -9: what it does
  // from then on is lost.
  void kill_after(uint64_t parks) { parks_to_live_ = parks; }
  sim::SimDisk& disk() { return *disk_; }
  cache::Tiers& tiers() { return *tiers_; }

  StepLoop& steps() { return *steps_; }
  sim::FakeRunner& runner() { return runner_; }
  sim::SimDevice& device() { return device_; }
  void forget_on_device() { cache_->clear(); }
  const OperationsWatch::Seen& seen() const { return watch_->seen(); }
  uint64_t clients() const { return clients_.size(); }
  const cache::TiersStats& tiers_stats() const { return tiers_stats_; }  // at the end
  const TraceSnapshot& timeline() const { return timeline_; }            // of all, at the end
  uint64_t failed_clients() const {
    return static_cast<uint64_t>(std::count_if(clients_.begin(), clients_.end(),
                                               [](const auto& each) { return each->failed(); }));
  }
  uint64_t cached_tokens() const {
    uint64_t sum = 0;
    for (const auto& client : clients_) sum += client->usage().cached_tokens;
    return sum;
  }

 private:
  // So many steps have run, or none will any more.
  bool seen_enough(uint64_t steps) {
    constexpr uint64_t kLooksAtTheEnd = 300;
    if (used_.failure() != nullptr) ++looks_behind_its_end_;
    return steps_->stats().steps >= steps || looks_behind_its_end_ > kLooksAtTheEnd;
  }

  void watch() {
    if (!watch_ || testing::Test::HasFailure()) return;
    cancel_waits_ = cancel_waits_ && runner_.enqueued() != nullptr;
    ASSERT_EQ(watch_->look(cancel_waits_), "");
  }

  Task<> drive(std::vector<std::function<void()>> stages) {
    StopFlag never;
    for (const auto& stage : stages) {
      stage();
      do {
        (void)co_await loop_.sleep_for(std::chrono::microseconds(1), never);
      } while (steps_->open_requests().load() > 0);
    }
    steps_->push(ShutDownCommand{});
  }
  Task<> run_driven(std::vector<std::function<void()>> stages) {
    Scope driver(loop_.executor());
    driver.spawn(drive(std::move(stages)));
    co_await steps_->run();
    co_await driver.join();
  }
  void next_stage(const std::vector<std::function<void()>>& stages, size_t& next) {
    if (next < stages.size()) {
      stages[next++]();
    } else if (!std::exchange(told_to_end_, true)) {
      steps_->push(ShutDownCommand{});
    }
  }

  void make_tiers() {
    cache::TiersOptions tiers;
    tiers.write = options_.write;
    tiers.verify_all = true;
    tiers.load_all = options_.load_all;
    tiers.load_bytes_max = options_.load_bytes_max;
    tiers.bands = options_.bands;
    tiers.scrub_pause = options_.scrub_pause;
    tiers.scrub_rest = options_.scrub_rest;
    tiers.rows_under_load_max = options_.step_tokens;
    memory_.push_back(*used_.allocate_host(options_.staging_bytes));
    tiers.staging = {memory_.back().data, options_.staging_bytes};
    tiers.nvme_codec = options_.codec;
    tiers.host_codec = options_.host_codec;
    for (std::span<std::byte>* buffers :
         {&tiers.encode_buffers, &tiers.decode_buffers, &tiers.host_encode_buffers,
          &tiers.host_decode_buffers, &tiers.landing}) {
      memory_.push_back(*used_.allocate_host(options_.codec_bytes));
      *buffers = {memory_.back().data, options_.codec_bytes};
    }
    for (const auto& layout : runner_.shape().groups) {
      if (options_.host_pages == 0) break;
      memory_.push_back(*used_.allocate_host(options_.host_pages * layout.page_bytes()));
      tiers.host.push_back({memory_.back().data, options_.host_pages});
    }
    tiers_ = std::make_unique<cache::Tiers>(
        tiers,
        cache::Tiers::Parts{
            loop_, *cache_, used_, store_.get(),
            [this](std::function<void()> work) { return workers_.run(std::move(work)); }},
        [kind = options_.eviction_policy](uint32_t pages) {
          return cache::make_eviction_policy(kind, {.capacity = pages});
        });
  }

  Task<> open_store() {
    io::BlockStoreOptions store;
    store.smaller_slots = options_.codec != kernels::PageCodec::kIdentity;
    store.directory = "store";
    store.bytes = options_.nvme_bytes;
    store.band_bytes_min = options_.band_bytes_min;
    for (const auto& layout : runner_.shape().groups) {
      store.slot_bytes.push_back(static_cast<uint32_t>(layout.page_bytes()));
    }
    std::sort(store.slot_bytes.begin(), store.slot_bytes.end());
    store.slot_bytes.erase(std::unique(store.slot_bytes.begin(), store.slot_bytes.end()),
                           store.slot_bytes.end());
    if (options_.seed % 2 == 0) {  // pages here are too small for it else
      store.run_work = [this](std::function<void()> work) { return workers_.run(std::move(work)); };
      store.elsewhere_bytes_min = 1;
    }
    auto opened = co_await io::BlockStore::open(std::move(store), loop_, *disk_);
    EXPECT_TRUE(opened.has_value()) << opened.error().message;
    if (opened) store_ = std::move(*opened);
  }
  Task<> close_tiers() { return tiers_->close(); }
  Task<> close_store() {
    co_await store_->close();
    co_await disk_->drain();
  }

  Request random_request() {
    Request request;
    // Conversations: prompts share long prefixes, and go on from one another.
    const uint64_t conversation = rng_.below(6);
    const bool is_long = rng_.below(4) == 0 || options_.long_prompts;
    const uint64_t length = 1 + rng_.below(is_long ? 300 : 90);
    const uint64_t branch = rng_.below(length) + rng_.below(3) * 100;
    for (uint64_t i = 0; i < length; ++i) {
      const uint64_t stream = i < branch ? conversation : 100 + rng_.below(3);
      request.prompt.push_back(
          static_cast<model::TokenId>(1 + random_at(options_.seed, stream, i) % 20));
    }
    if (options_.flood && rng_.below(2) == 0) {
      for (model::TokenId& token : request.prompt) {
        token = static_cast<model::TokenId>(1 + rng_.below(20));
      }
      request.tenant = "flood";
    }
    request.sampling.seed = rng_.below(3);
    request.stop.max_tokens = static_cast<uint32_t>(rng_.below(90));
    if (rng_.below(4) == 0) request.stop.min_tokens = static_cast<uint32_t>(rng_.below(20));
    request.stop.ignore_eos = rng_.below(4) == 0;
    if (rng_.below(4) == 0) request.stop.stop_strings = {"ab", "bca"};
    if (rng_.below(6) == 0) request.choices = 1 + static_cast<uint32_t>(rng_.below(5));
    if (rng_.below(8) == 0) request.prompt_logprobs = 2;
    request.priority = static_cast<int32_t>(rng_.below(3)) - 1;
    if (request.tenant.empty() && rng_.below(3) == 0) request.tenant = "other";
    request.cache_salt = rng_.below(5) == 0 ? "salt" : "";
    if (rng_.below(3) == 0) request.session = "session " + std::to_string(rng_.below(4));
    if (options_.holds) add_holds(request);
    if (rng_.below(10) == 0) {
      request.deadline = clock_.now() + std::chrono::microseconds(rng_.below(20000));
    }
    return request;
  }

  // Static parts, pins, and who wants nothing from the cache.
  void add_holds(Request& request) {
    request.report_waiting = rng_.below(2) == 0;
    if (rng_.below(4) == 0) {
      request.breakpoints.push_back({static_cast<uint32_t>(1 + rng_.below(request.prompt.size())),
                                     std::chrono::seconds(rng_.below(3))});
    }
    request.explicit_breakpoints = rng_.below(12) == 0;
    if (rng_.below(12) != 0) return;
    request.stop.max_tokens = 0;
    request.stop.min_tokens = 0;
    request.prompt_logprobs.reset();
    request.choices = 1;
    request.pin =
        PinOrder{"pin " + std::to_string(rng_.below(6)), std::chrono::seconds(1 + rng_.below(3))};
  }

  void random_event() {
    switch (rng_.below(12)) {
      case 0:
      case 1:
        cancel(static_cast<RequestId>(1 + rng_.below(last_id_ + 2)));
        break;
      case 2:
        steps_->push(EndSessionCommand{"session " + std::to_string(rng_.below(4))});
        break;
      case 3:
        if (options_.holds && rng_.below(2) == 0) {
          steps_->push(PrefetchCommand{"session " + std::to_string(rng_.below(4))});
        }
        if (options_.holds && rng_.below(4) == 0) {
          steps_->push(UnpinCommand{"", "pin " + std::to_string(rng_.below(6)), [](bool) {}});
        }
        if (rng_.below(10) == 0) steps_->push(ResetCacheCommand{[](uint64_t) {}});
        break;
      default:
        if (steps_->open_requests().load() < 40) submit(random_request());
    }
  }

  WorldOptions options_;
  Prng rng_;
  SimulatedClock clock_;
  sim::SimDevice device_;
  kernels::Device& used_;  // that one, or another
  sim::FakeTokenizer tokenizer_;
  sim::FakeRunner runner_;
  sim::SimParker parker_;
  EngineLoop loop_;
  sim::SimWorkers workers_{loop_, rng_};
  std::vector<kernels::DeviceMemory> memory_;
  std::unique_ptr<sim::SimDisk> disk_;
  std::unique_ptr<io::BlockStore> store_;
  std::unique_ptr<cache::KvCache> cache_;
  std::optional<OperationsWatch> watch_;
  bool cancel_waits_ = false;  // that was pushed while the step that is enqueued had not run
  std::unique_ptr<cache::Tiers> tiers_;
  cache::TiersStats tiers_stats_;
  std::unique_ptr<StepLoop> steps_;
  std::vector<std::shared_ptr<Client>> clients_;
  static constexpr uint64_t kParksMax = 2'000'000;
  uint64_t parks_ = 0;
  uint64_t looks_behind_its_end_ = 0;  // at the device
  bool told_to_end_ = false;
  std::optional<uint64_t> parks_to_live_;
  uint64_t last_id_ = 0;
  TraceSnapshot timeline_;
  bool then_done_ = false;
  uint64_t sessions_at_end_ = ~uint64_t{0};
  std::function<bool()> condition_;
  std::function<void()> then_;
};

inline Request prompt_of(uint32_t length, uint32_t max_tokens) {
  Request request;
  for (uint32_t i = 0; i < length; ++i) request.prompt.push_back(1 + (i * 7 + i / 16) % 20);
  request.stop.max_tokens = max_tokens;
  request.stop.ignore_eos = true;
  return request;
}

}  // namespace spillway::scheduler
