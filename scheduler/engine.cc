#include "scheduler/engine.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <random>
#include <thread>

#include "cache/kv_cache.h"
#include "cache/tiers.h"
#include "io/block_store.h"
#include "io/make_ring.h"
#include "runtime/check.h"
#include "runtime/engine_loop.h"
#include "runtime/log.h"
#include "runtime/worker_pool.h"
#include "scheduler/device_pools.h"
#include "scheduler/engine_memory.h"
#include "scheduler/pools.h"
#include "scheduler/step_loop.h"

namespace spillway::scheduler {
namespace {

PolicyOptions policy_options(const EngineOptions& options) {
  PolicyOptions policy;
  policy.sequences_max = options.sequences_max;
  policy.step_tokens_max = options.step_tokens_max;
  return policy;
}

// About where attention takes as long as all else in models of 1 to 10 billion parameters.
constexpr uint32_t kDoubleCostTokens = 16 * 1024;

Task<> store_result(Task<Result<>> task, Result<>& result) { result = co_await std::move(task); }

uint64_t random_secret() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// What to do about a store that the disk has no room for.
Error explained(Error error, const EngineOptions& options) {
  if (error.code != ErrorCode::kResourceExhausted) return error;
  std::error_code unknown;
  const auto space = std::filesystem::space(options.kv_nvme_dir, unknown);
  if (unknown) return error;
  error.message += "; --kv-nvme-size asks for " + std::to_string(options.kv_nvme_bytes >> 20) +
                   " MiB, and " + std::to_string(space.available >> 20) +
                   " MiB are free there: make it smaller, or name another --kv-nvme-dir";
  return error;
}

}  // namespace

constexpr uint32_t kWorkThreads = 2;
constexpr uint32_t kWorkJobsMax = 1024;  // more than there are buffers

// With what a closed store's disk has not ended.
constexpr std::chrono::milliseconds kDrainPatience(200);

struct Engine::Impl {
  EngineOptions options;
  RealClock clock;
  io::ChosenParker chosen;
  std::string waits_in;
  std::vector<std::string> tier_lines;
  std::unique_ptr<DevicePools> device_pools;
  EngineMemory memory;  // of the tiers
  std::unique_ptr<EngineLoop> loop;
  std::unique_ptr<WorkerPool> workers;  // codecs, checksums; null: there is no work for them
  std::unique_ptr<io::Ring> ring;
  std::unique_ptr<io::BlockStore> store;
  std::unique_ptr<cache::KvCache> cache;
  std::unique_ptr<cache::Tiers> tiers;
  std::unique_ptr<StepLoop> steps;
  // The disk has not ended what it was asked for: all that its operations name is left to the end
  // of the process.
  bool abandoned = false;
  std::atomic<uint64_t> next_id{1};
  std::thread thread;

  // Control commands are never lost: at the bound the caller waits for the next step.
  void push(Command command) {
    while (!steps->push(std::move(command))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  Task<Result<>> open_store(const std::vector<kernels::KvGroupLayout>& layouts);
  RunWork run_work();
  Task<> close();
};

// REQUIRES: on the engine's thread.
Task<Result<>> Engine::Impl::open_store(const std::vector<kernels::KvGroupLayout>& layouts) {
  io::BlockStoreOptions wanted;
  wanted.directory = options.kv_nvme_dir;
  std::error_code made;
  std::filesystem::create_directories(wanted.directory, made);
  if (made) {
    co_return Error{ErrorCode::kIo,
                    "--kv-nvme-dir " + wanted.directory + " cannot be made: " + made.message()};
  }
  wanted.bytes = options.kv_nvme_bytes;
  for (const auto& layout : layouts) {
    wanted.slot_bytes.push_back(static_cast<uint32_t>(layout.page_bytes()));
  }
  std::sort(wanted.slot_bytes.begin(), wanted.slot_bytes.end());
  const auto repeated = std::unique(wanted.slot_bytes.begin(), wanted.slot_bytes.end());
  wanted.slot_bytes.erase(repeated, wanted.slot_bytes.end());
  wanted.smaller_slots = options.kv_nvme_codec != kernels::PageCodec::kIdentity;
  wanted.page_tokens = layouts.front().page_tokens;
  wanted.run_work = run_work();
  auto opened = co_await io::BlockStore::open(std::move(wanted), *loop, *ring);
  if (!opened) co_return explained(opened.error(), options);
  store = std::move(*opened);
  const io::BlockStoreStats stats = store->stats();
  tier_lines.push_back("nvme     " + options.kv_nvme_dir + ": " +
                       std::to_string(stats.capacity_bytes >> 20) + " MiB for pages, " +
                       std::to_string(stats.pages) + " found; " + ring->description() +
                       (stats.direct ? "" : ", buffered: no O_DIRECT on this file system"));
  if (options.kv_nvme_codec != kernels::PageCodec::kIdentity) {
    tier_lines.back() += ", codec " + std::string(page_codec_name(options.kv_nvme_codec));
  }
  co_return Result<>();
}

RunWork Engine::Impl::run_work() {
  if (workers == nullptr) return {};
  return [pool = workers.get()](std::function<void()> work) { return pool->run(std::move(work)); };
}

Task<> Engine::Impl::close() {
  if (tiers != nullptr) co_await tiers->close();
  if (store != nullptr) co_await store->close();
  if (ring == nullptr) co_return;
  const auto is_drained = [this] {
    const io::RingStats stats = ring->stats();
    return stats.in_flight + stats.queued == 0 && (store == nullptr || store->drained());
  };
  StopFlag never;
  const Clock::TimePoint until = clock.now() + kDrainPatience;
  while (!is_drained() && clock.now() < until) {
    (void)co_await loop->sleep_for(std::chrono::milliseconds(5), never);
  }
  abandoned = !is_drained();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Engine>> Engine::start(const EngineOptions& wanted, model::Runner& runner,
                                              kernels::Device& device,
                                              const model::Tokenizer& tokenizer) {
  auto impl = std::make_unique<Impl>();
  EngineOptions& options = impl->options;
  options = wanted;
  const model::RunnerShape& shape = runner.shape();
  options.step_tokens_max = std::min(options.step_tokens_max, runner.batch_tokens_max());
  options.sequences_max = std::min(options.sequences_max, options.step_tokens_max);
  if (options.context_tokens_max == 0) options.context_tokens_max = shape.context_tokens_max;
  for (const auto& [codec, flag] : {std::pair(options.kv_nvme_codec, "--kv-nvme-codec "),
                                    std::pair(options.kv_host_codec, "--kv-host-codec ")}) {
    if (kernels::suits(codec, shape.groups[0].type)) continue;
    return invalid_argument(flag + std::string(kernels::page_codec_name(codec)) +
                            " is for KV of 16 bits: take --kv-cache-dtype f16 or bf16, or " + flag +
                            "identity");
  }
  PolicyOptions policy = policy_options(options);
  const Result<PoolPlan> pools =
      plan_pools(policy, shape.groups, options.kv_device_bytes, options.context_tokens_max);
  if (!pools) return pools.error();
  options.context_tokens_max = pools->context_tokens_max;
  if (pools->step_tokens_max < options.step_tokens_max) {
    spdlog::info("step_tokens wanted={} used={}: its pages behind the window would fill the pool",
                 options.step_tokens_max, pools->step_tokens_max);
    options.step_tokens_max = policy.step_tokens_max = pools->step_tokens_max;
    policy.mixed_prefill_max = std::min(policy.mixed_prefill_max, policy.step_tokens_max);
  }

  cache::KvCacheOptions cache_options;
  cache_options.fingerprint = shape.fingerprint +
                              kernels::fingerprint_of_codec(options.kv_nvme_codec) +
                              kernels::fingerprint_of_codec(options.kv_host_codec);
  cache_options.prefix_caching = options.prefix_caching;
  cache_options.secret = random_secret();
  cache_options.pinned_share_max = options.pin_share_max;
  std::vector<DevicePools::Size> sizes;
  for (size_t g = 0; g < shape.groups.size(); ++g) {
    sizes.push_back({.page_bytes = shape.groups[g].page_bytes(), .pages = pools->pages[g]});
  }
  impl->device_pools = std::make_unique<DevicePools>(device, std::move(sizes));
  if (const Result<> made = impl->device_pools->allocate(); !made) return made.error();
  const std::vector<std::byte*> bases = impl->device_pools->bases();
  for (size_t g = 0; g < shape.groups.size(); ++g) {
    cache_options.groups.push_back({shape.groups[g], bases[g], pools->pages[g]});
  }
  runner.bind_pages(bases);
  cache::TiersOptions tier_options;
  tier_options.write = options.kv_nvme_write;
  tier_options.verify_all = options.kv_verify_all;
  tier_options.scrub_pause = options.kv_nvme_scrub;
  tier_options.load_all = options.load_all;
  if (!shape.pages_by_layer) tier_options.bands = cache::BandLoads::kOff;
  tier_options.rows_under_load_max = std::min(options.step_tokens_max, runner.rows_together_max());
  tier_options.nvme_codec = options.kv_nvme_codec;
  tier_options.host_codec = options.kv_host_codec;
  const auto host_line =
      impl->memory.make_tier_memory(device, options, *pools, shape.groups, tier_options);
  if (!host_line) return host_line.error();
  if (!host_line->empty()) impl->tier_lines.push_back(*host_line);
  const bool nvme = wants_nvme(options);
  impl->chosen =
      io::make_parker(options.io_uring ? io::IoUring::kWhereItWorks : io::IoUring::kNever);
  impl->waits_in = impl->chosen.parker->description();
  if (!impl->chosen.why_not_io_uring.empty()) {
    impl->waits_in += " (" + impl->chosen.why_not_io_uring + ")";
  }
  impl->loop = std::make_unique<EngineLoop>(impl->clock, *impl->chosen.parker);
  if (nvme || wants_encoded_host(options)) {
    impl->workers = std::make_unique<WorkerPool>(
        WorkerPool::Options{.threads = kWorkThreads, .jobs_max = kWorkJobsMax});
  }
  const uint32_t double_cost_pages = kDoubleCostTokens / shape.groups[0].page_tokens;
  const auto make_policy = [kind = options.eviction_policy, double_cost_pages](uint32_t pages) {
    return cache::make_eviction_policy(kind,
                                       {.capacity = pages, .double_cost_pages = double_cost_pages});
  };

  auto ready = std::make_shared<std::promise<Result<>>>();
  std::future<Result<>> began_future = ready->get_future();
  // The store is opened, and all is built on what it says, by the thread that will own it.
  impl->thread = std::thread([&, ready, raw = impl.get(), options = cache_options, tier_options,
                              policy]() mutable {
    if (raw->options.trace) raw->loop->trace().hold();
    if (nvme) {
      raw->ring = io::make_ring(raw->chosen, *raw->loop);
      Result<> opened;
      raw->loop->run(store_result(raw->open_store(shape.groups), opened));
      if (!opened) {
        raw->loop->run(raw->close());
        ready->set_value(opened.error());
        return;
      }
      options.secret = raw->store->secret();
      Result<> registered = raw->device_pools->register_with(*raw->ring);
      if (registered) registered = raw->memory.register_with(*raw->ring);
      if (!registered) {
        raw->tier_lines.push_back("         plain reads: " + registered.error().message);
      }
    }
    raw->cache = std::make_unique<cache::KvCache>(std::move(options), make_policy(pools->pages[0]));
    if (nvme || !tier_options.host.empty()) {
      raw->tiers = std::make_unique<cache::Tiers>(
          tier_options,
          cache::Tiers::Parts{*raw->loop, *raw->cache, device, raw->store.get(), raw->run_work()},
          make_policy);
      if (const uint64_t others = raw->tiers->stats().other_pages; others > 0) {
        raw->tier_lines.push_back("         " + std::to_string(others) +
                                  " of them of other models or settings: the first to go");
      }
    }
    raw->steps = std::make_unique<StepLoop>(
        raw->options, policy,
        StepLoop::Parts{*raw->loop, *raw->cache, runner, device, tokenizer, bases, raw->tiers.get(),
                        raw->ring.get(), raw->device_pools.get()});
    ready->set_value({});
    raw->loop->run(raw->steps->run());
    raw->loop->run(raw->close());
  });
  const Result<> began = began_future.get();
  if (!began) {
    impl->thread.join();
    if (impl->abandoned) static_cast<void>(impl.release());
    return began.error();
  }
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::~Engine() {
  impl_->push(ShutDownCommand{});
  impl_->thread.join();
  if (impl_->abandoned) {
    spdlog::warn(
        "nvme state=abandoned: the disk has not ended {} transfers; what was durable is kept",
        impl_->ring->stats().in_flight);
    static_cast<void>(impl_.release());
    return;
  }
  impl_->steps.reset();
  impl_->tiers.reset();
}

Result<RequestId> Engine::submit(Request request, std::shared_ptr<OutputSink> sink) {
  if (request.prompt.empty()) return invalid_argument("the prompt has no tokens");
  if (request.choices == 0) return invalid_argument("n must be at least 1");
  // A prompt leaves room for one token, unless none is asked for.
  const size_t prompt_max =
      impl_->options.context_tokens_max - (request.stop.max_tokens > 0 ? 1 : 0);
  if (request.prompt.size() > prompt_max) {
    return invalid_argument("the prompt has " + std::to_string(request.prompt.size()) +
                            " tokens; the longest context here is " +
                            std::to_string(impl_->options.context_tokens_max) + " tokens");
  }
  const uint32_t open_max = impl_->options.waiting_max + impl_->options.sequences_max;
  std::atomic<uint32_t>& open = impl_->steps->open_requests();
  if (open.fetch_add(1, std::memory_order_relaxed) >= open_max) {
    open.fetch_sub(1, std::memory_order_relaxed);
    return Error{
        ErrorCode::kResourceExhausted,
        "too many requests are waiting (" + std::to_string(open_max) + "); try again later"};
  }
  auto live = std::make_unique<LiveRequest>();
  live->id = static_cast<RequestId>(impl_->next_id.fetch_add(1, std::memory_order_relaxed));
  live->arrived = impl_->clock.now();
  live->sink = std::move(sink);
  live->request = std::move(request);
  auto first = std::make_unique<LiveSequence>();
  first->request = live.get();
  first->tokens = live->request.prompt;
  // Here, on the caller's thread: a long prompt's keys cost the engine nothing.
  first->keys = impl_->cache->keys(live->request.tenant, live->request.cache_salt, first->tokens);
  live->sequences.push_back(std::move(first));
  const RequestId id = live->id;
  impl_->push(SubmitCommand{std::move(live)});
  return id;
}

void Engine::cancel(RequestId request) { impl_->push(CancelCommand{request}); }

void Engine::end_session(const std::string& session) { impl_->push(EndSessionCommand{session}); }

void Engine::prefetch(const std::string& session) {
  // A hint: one that finds the inbox full is lost.
  impl_->steps->push(PrefetchCommand{session});
}

void Engine::pins(const std::string& tenant, std::function<void(PinList)> then) {
  impl_->push(ListPinsCommand{tenant, std::move(then)});
}

void Engine::unpin(const std::string& tenant, const std::string& id,
                   std::function<void(bool)> then) {
  impl_->push(UnpinCommand{tenant, id, std::move(then)});
}

void Engine::reset_prefix_cache(std::function<void(uint64_t pages)> then) {
  impl_->push(ResetCacheCommand{std::move(then)});
}

void Engine::start_trace() { impl_->push(StartTraceCommand{}); }

void Engine::take_trace(Clock::TimePoint begin, std::optional<std::string> tenant,
                        std::function<void(TraceSnapshot)> then) {
  impl_->push(TakeTraceCommand{begin, std::move(tenant), std::move(then)});
}

EngineStats Engine::stats() const {
  EngineStats stats = impl_->steps->stats();
  stats.io_uring = impl_->chosen.uring != nullptr;
  return stats;
}

uint32_t Engine::context_tokens_max() const { return impl_->options.context_tokens_max; }

const std::vector<std::string>& Engine::tier_lines() const { return impl_->tier_lines; }

const std::string& Engine::waits_in() const { return impl_->waits_in; }

}  // namespace spillway::scheduler
