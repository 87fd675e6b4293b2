// What the cache costs the engine per request and per page. Aims: a match of 32k tokens in 10 us
// with its keys at hand (it compares 128 KiB of tokens, about 15 GB/s), keys in 20 ns a page.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "cache/kv_cache.h"

namespace spillway::cache {
namespace {

constexpr uint32_t kPage = 16;
constexpr uint32_t kLong = 32 * 1024;  // tokens

class Cache {
 public:
  explicit Cache(uint32_t capacity, uint32_t window = 0,
                 EvictionPolicyKind policy = EvictionPolicyKind::kValue) {
    KvCacheOptions options;
    for (uint32_t g = 0; g < (window > 0 ? 2 : 1); ++g) {
      kernels::KvGroupLayout layout;
      layout.layers = 1;
      layout.kv_heads = 1;
      layout.head_dim = 2;
      layout.window = g == 0 ? 0 : window;
      const size_t bytes = layout.page_bytes() * capacity;
      memory_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)), &std::free);
      options.groups.push_back({layout, memory_.back().get(), capacity});
    }
    cache_ = std::make_unique<KvCache>(std::move(options),
                                       make_eviction_policy(policy, {.capacity = capacity}));
  }

  KvCache& operator*() { return *cache_; }
  KvCache* operator->() { return cache_.get(); }

  void run(std::span<const TokenId> tokens) {
    auto sequence = cache_->begin(cache_->keys("", "", tokens), tokens);
    std::span<const TokenId> rest = tokens.subspan(sequence->size());
    if (!cache_->reserve(*sequence, static_cast<uint32_t>(rest.size()))) std::abort();
    cache_->commit(*sequence, rest);
    cache_->release(std::move(sequence));
  }

 private:
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> memory_;
  std::unique_ptr<KvCache> cache_;
};

std::vector<TokenId> tokens_of(uint32_t count, uint32_t seed) {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>(i * 7 + seed * 100'003);
  return tokens;
}

void keys_of_32k_tokens(benchmark::State& state) {
  Cache cache(1);
  const auto prompt = tokens_of(kLong, 0);
  for (auto _ : state) benchmark::DoNotOptimize(cache->keys("tenant", "salt", prompt));
  state.SetItemsProcessed(state.iterations() * (kLong / kPage));
}
BENCHMARK(keys_of_32k_tokens)->Unit(benchmark::kMicrosecond);

// Arguments: edges on the path, window.
void match_of_32k_tokens(benchmark::State& state) {
  Cache cache(6000, static_cast<uint32_t>(state.range(1)));
  const auto prompt = tokens_of(kLong + 1, 0);
  const auto edges = static_cast<uint32_t>(state.range(0));
  cache.run(prompt);
  for (uint32_t i = 1; i < edges; ++i) {  // others part from it and so split its edge
    std::vector<TokenId> other(prompt.begin(), prompt.begin() + i * (kLong / edges));
    other.resize(other.size() + kPage, -1);
    cache.run(other);
  }
  const PromptKeys keys = cache->keys("", "", prompt);
  if (cache->match_length(keys, prompt) != kLong) std::abort();
  for (auto _ : state) benchmark::DoNotOptimize(cache->match_length(keys, prompt));
  state.SetBytesProcessed(state.iterations() * kLong * sizeof(TokenId));
}
BENCHMARK(match_of_32k_tokens)
    ->Args({1, 0})
    ->Args({50, 0})
    ->Args({1, 512})
    ->Args({50, 512})
    ->Unit(benchmark::kMicrosecond);

// With the count of pages that would be taken out of what is evictable: what admission asks.
void peek_at_32k_tokens(benchmark::State& state) {
  Cache cache(6000);
  const auto prompt = tokens_of(kLong + 1, 0);
  cache.run(prompt);
  const PromptKeys keys = cache->keys("", "", prompt);
  for (auto _ : state) benchmark::DoNotOptimize(cache->peek(keys, prompt));
}
BENCHMARK(peek_at_32k_tokens)->Unit(benchmark::kMicrosecond);

void match_that_parts_in_the_last_page(benchmark::State& state) {
  Cache cache(6000);
  auto prompt = tokens_of(kLong + 1, 0);
  cache.run(prompt);
  prompt[kLong - 1] = -1;
  const PromptKeys keys = cache->keys("", "", prompt);
  for (auto _ : state) benchmark::DoNotOptimize(cache->match_length(keys, prompt));
}
BENCHMARK(match_that_parts_in_the_last_page)->Unit(benchmark::kMicrosecond);

// A hit of 32k tokens from its start to its end: match, pin, tables, unpin.
void begin_and_release_32k_tokens(benchmark::State& state) {
  Cache cache(6000);
  const auto prompt = tokens_of(kLong + 1, 0);
  cache.run(prompt);
  const PromptKeys keys = cache->keys("", "", prompt);
  for (auto _ : state) cache->release(cache->begin(keys, prompt));
}
BENCHMARK(begin_and_release_32k_tokens)->Unit(benchmark::kMicrosecond);

// Prompts that were never seen, in a pool that is full: each page inserted evicts one. Arguments:
// window, policy (EvictionPolicyKind).
void insert_and_evict_8k_tokens(benchmark::State& state) {
  Cache cache(4096, static_cast<uint32_t>(state.range(0)),
              static_cast<EvictionPolicyKind>(state.range(1)));
  uint32_t seed = 0;
  for (; seed < 10; ++seed) cache.run(tokens_of(8192, seed));
  for (auto _ : state) {
    state.PauseTiming();
    const auto prompt = tokens_of(8192, seed++);
    state.ResumeTiming();
    cache.run(prompt);
  }
  state.SetItemsProcessed(state.iterations() * (8192 / kPage));
}
BENCHMARK(insert_and_evict_8k_tokens)
    ->Args({0, 0})
    ->Args({0, 1})
    ->Args({0, 2})
    ->Args({512, 2})
    ->Unit(benchmark::kMicrosecond);

// What one decode step costs the cache for each sequence.
void decode_one_token(benchmark::State& state) {
  Cache cache(1 << 16, static_cast<uint32_t>(state.range(0)));
  const auto prompt = tokens_of(1, 0);
  auto sequence = cache->begin(cache->keys("", "", prompt), prompt);
  TokenId token = 0;
  for (auto _ : state) {
    if (!cache->reserve(*sequence, 1)) {
      state.SkipWithError("out of pages");
      break;
    }
    cache->commit(*sequence, {&token, 1});
    ++token;
  }
  cache->release(std::move(sequence));
}
BENCHMARK(decode_one_token)->Arg(0)->Arg(512)->Iterations(500'000);

}  // namespace
}  // namespace spillway::cache

BENCHMARK_MAIN();
