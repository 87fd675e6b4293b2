#include "scheduler/engine.h"

#include <chrono>
#include <random>
#include <thread>

#include "cache/kv_cache.h"
#include "io/make_ring.h"
#include "runtime/check.h"
#include "runtime/engine_loop.h"
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

uint64_t random_secret() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

struct Engine::Impl {
  EngineOptions options;
  std::vector<kernels::DeviceMemory> memory;  // (group)
  RealClock clock;
  std::unique_ptr<Parker> parker;
  std::string waits_in;
  std::unique_ptr<EngineLoop> loop;
  std::unique_ptr<cache::KvCache> cache;
  std::unique_ptr<StepLoop> steps;
  std::atomic<uint64_t> next_id{1};
  std::thread thread;

  // Control commands are never lost: at the bound the caller waits for the next step.
  void push(Command command) {
    while (!steps->push(std::move(command))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

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
  const PolicyOptions policy = policy_options(options);
  const Result<PoolPlan> pools =
      plan_pools(policy, shape.groups, options.kv_device_bytes, options.context_tokens_max);
  if (!pools) return pools.error();
  options.context_tokens_max = pools->context_tokens_max;

  cache::KvCacheOptions cache_options;
  cache_options.fingerprint = shape.fingerprint;
  cache_options.prefix_caching = options.prefix_caching;
  cache_options.secret = random_secret();
  std::vector<std::byte*> bases;
  for (size_t g = 0; g < shape.groups.size(); ++g) {
    Result<kernels::DeviceMemory> memory =
        device.allocate(pools->pages[g] * shape.groups[g].page_bytes());
    if (!memory) return memory.error();
    bases.push_back(memory->data);
    cache_options.groups.push_back({shape.groups[g], memory->data, pools->pages[g]});
    impl->memory.push_back(std::move(*memory));
  }
  runner.bind_pages(bases);
  const uint32_t page_tokens = shape.groups[0].page_tokens;
  impl->cache = std::make_unique<cache::KvCache>(
      std::move(cache_options),
      cache::make_eviction_policy(
          options.eviction_policy,
          {.capacity = pools->pages[0], .double_cost_pages = kDoubleCostTokens / page_tokens}));
  io::ChosenParker chosen = io::make_parker();
  impl->parker = std::move(chosen.parker);
  impl->waits_in = impl->parker->description();
  if (!chosen.why_not_io_uring.empty()) impl->waits_in += " (" + chosen.why_not_io_uring + ")";
  impl->loop = std::make_unique<EngineLoop>(impl->clock, *impl->parker);
  impl->steps = std::make_unique<StepLoop>(
      options, policy,
      StepLoop::Parts{*impl->loop, *impl->cache, runner, device, tokenizer, bases});
  impl->thread = std::thread([raw = impl.get()] { raw->loop->run(raw->steps->run()); });
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::~Engine() {
  impl_->push(ShutDownCommand{});
  impl_->thread.join();
  impl_->steps.reset();
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

void Engine::reset_prefix_cache(std::function<void(uint64_t pages)> then) {
  impl_->push(ResetCacheCommand{std::move(then)});
}

EngineStats Engine::stats() const { return impl_->steps->stats(); }

uint32_t Engine::context_tokens_max() const { return impl_->options.context_tokens_max; }

const std::string& Engine::waits_in() const { return impl_->waits_in; }

}  // namespace spillway::scheduler
