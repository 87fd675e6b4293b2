#include "cache_fixture.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"

namespace spillway::cache {
namespace {

// What the "model" writes for a token: it depends on everything before it, as KV does.
uint64_t mixed(uint64_t state, uint64_t value) {
  state = (state ^ value) * 0x9e3779b97f4a7c15u;
  return state ^ (state >> 29);
}

uint64_t start_state(std::string_view tenant, uint32_t group) {
  uint64_t state = 0x5911ca7e + group;
  for (char c : tenant) state = mixed(state, static_cast<uint8_t>(c) + 1);
  return state;
}

constexpr uint32_t kPoison = 0xdb;

}  // namespace

TestCache::TestCache(const CacheShape& shape) : shape_(shape) {
  KvCacheOptions options;
  for (size_t g = 0; g < shape.windows.size(); ++g) {
    kernels::KvGroupLayout layout;
    layout.layers = g < shape.layers.size() ? shape.layers[g] : 1;
    layout.kv_heads = 1;
    layout.head_dim = 2;
    layout.page_tokens = kPageTokens;
    layout.window = shape.windows[g];
    const size_t bytes = layout.page_bytes() * shape.capacity[g];
    memory_.emplace_back(
        static_cast<std::byte*>(std::aligned_alloc(kernels::kPageAlignment, bytes)), &std::free);
    std::memset(memory_.back().get(), kPoison, bytes);
    layouts_.push_back(layout);
    options.groups.push_back({layout, memory_.back().get(), shape.capacity[g]});
  }
  options.fingerprint = shape.fingerprint;
  options.secret = shape.secret;
  options.prefix_caching = shape.prefix_caching;
  options.key_mode = shape.key_mode;
  options.sessions_max = shape.sessions_max;
  auto policy = std::make_unique<ObservedPolicy>(
      make_eviction_policy(shape.policy, {.capacity = shape.capacity[0]}),
      [this](const EvictionCandidate& page) { gone_.push_back(page.key); });
  cache_ = std::make_unique<KvCache>(std::move(options), std::move(policy));
}

std::byte* TestCache::page(uint32_t group, PageId page) const {
  return memory_[group].get() + index_of(page) * layouts_[group].page_bytes();
}

TestSequence TestCache::begin(std::span<const TokenId> tokens, std::string_view tenant,
                              uint32_t cached_max) {
  TestSequence made;
  made.sequence = cache_->begin(keys(tokens, tenant), tokens, cached_max);
  made.tenant = tenant;
  made.tokens.assign(tokens.begin(), tokens.begin() + made.sequence->size());
  return made;
}

void TestCache::write(TestSequence& sequence, uint32_t from, std::span<const TokenId> all) {
  for (uint32_t g = 0; g < layouts_.size(); ++g) {
    uint64_t state = start_state(sequence.tenant, g);
    for (uint32_t i = 0; i < all.size(); ++i) {
      state = mixed(state, static_cast<uint32_t>(all[i]));
      if (i < from) continue;
      const PageId id = sequence.sequence->table(g)[i / kPageTokens];
      CHECK(id != kNoPage);
      std::memcpy(page(g, id) + i % kPageTokens * sizeof state, &state, sizeof state);
    }
  }
}

bool TestCache::extend(TestSequence& sequence, std::span<const TokenId> tokens, uint32_t chunk) {
  while (!tokens.empty()) {
    const uint32_t count = static_cast<uint32_t>(std::min<size_t>(chunk, tokens.size()));
    if (!cache_->reserve(*sequence.sequence, count)) return false;
    const uint32_t from = static_cast<uint32_t>(sequence.tokens.size());
    sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.begin() + count);
    write(sequence, from, sequence.tokens);
    cache_->commit(*sequence.sequence, tokens.first(count));
    tokens = tokens.subspan(count);
  }
  return true;
}

TestSequence TestCache::run(std::span<const TokenId> tokens, std::string_view tenant,
                            uint32_t chunk) {
  TestSequence sequence = begin(tokens, tenant);
  CHECK(extend(sequence, tokens.subspan(sequence.tokens.size()), chunk));
  return sequence;
}

TestSequence TestCache::fork(TestSequence& sequence) {
  TestSequence twin{nullptr, sequence.tenant, sequence.tokens};
  twin.sequence = cache_->fork(*sequence.sequence, [&](uint32_t group, PageId from, PageId to) {
    std::memcpy(page(group, to), page(group, from), layouts_[group].page_bytes());
  });
  return twin;
}

void TestCache::release(TestSequence sequence, std::string_view session) {
  cache_->release(std::move(sequence.sequence), session);
}

void TestCache::leak() { static_cast<void>(cache_.release()); }

std::string TestCache::wrong_page(const TestSequence& sequence) const {
  if (sequence.tokens.size() != sequence.sequence->size()) return "a sequence's size is wrong";
  for (uint32_t g = 0; g < layouts_.size(); ++g) {
    const uint32_t window = layouts_[g].window;
    const uint32_t size = sequence.sequence->size();
    const uint32_t seen_from = window == 0 || size < window ? 0 : size + 1 - window;
    uint64_t state = start_state(sequence.tenant, g);
    for (uint32_t i = 0; i < size; ++i) {
      state = mixed(state, static_cast<uint32_t>(sequence.tokens[i]));
      if (i < seen_from) continue;
      const PageId id = sequence.sequence->table(g)[i / kPageTokens];
      if (id == kNoPage) return "a page that the next query sees is not in the table";
      uint64_t found;
      std::memcpy(&found, page(g, id) + i % kPageTokens * sizeof found, sizeof found);
      if (found != state) return "a page has another prefix's bytes";
    }
  }
  return {};
}

std::string TestCache::problem(std::span<TestSequence* const> sequences) const {
  for (const TestSequence* sequence : sequences) {
    std::string wrong = wrong_page(*sequence);
    if (!wrong.empty()) return wrong;
  }
  return cache_->check_integrity();
}

std::vector<TokenId> some_tokens(uint32_t count, uint32_t seed) {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>(seed * 100'003 + i);
  return tokens;
}

std::vector<TokenId> joined(std::span<const TokenId> a, std::span<const TokenId> b) {
  std::vector<TokenId> tokens(a.begin(), a.end());
  tokens.insert(tokens.end(), b.begin(), b.end());
  return tokens;
}

}  // namespace spillway::cache
