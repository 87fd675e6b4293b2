// A small KvCache over plain memory, driven as the engine drives it, whose "model" writes into each
// page what only the right tokens at the right place in the right namespace give. Any page that
// turns up in a table with other bytes is a wrong hit.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/kv_cache.h"
#include "observed_policy.h"

namespace spillway::cache {

struct CacheShape {
  std::vector<uint32_t> windows = {0};    // [group] tokens; 0: full attention
  std::vector<uint32_t> capacity = {64};  // [group] pages
  std::vector<uint32_t> layers = {};      // [group], which make its pages larger; empty: 1 each
  bool prefix_caching = true;
  KeyMode key_mode = KeyMode::kHash;
  uint32_t sessions_max = 64;
  EvictionPolicyKind policy = EvictionPolicyKind::kLru;
  std::string fingerprint = "test model";
  uint64_t secret = 0;
};

// A sequence with what the engine knows about it.
struct TestSequence {
  std::unique_ptr<Sequence> sequence;
  std::string tenant;
  std::vector<TokenId> tokens;  // committed: as many as sequence->size()
};

class TestCache {
 public:
  static constexpr uint32_t kPageTokens = 16;

  explicit TestCache(const CacheShape& shape);

  KvCache& cache() { return *cache_; }
  const KvCache& cache() const { return *cache_; }
  PromptKeys keys(std::span<const TokenId> tokens, std::string_view tenant = {}) const {
    return cache_->keys(tenant, {}, tokens);
  }
  uint32_t match_length(std::span<const TokenId> tokens, std::string_view tenant = {}) const {
    return cache_->match_length(keys(tokens, tenant), tokens);
  }

  TestSequence begin(std::span<const TokenId> tokens, std::string_view tenant = {},
                     uint32_t cached_max = UINT32_MAX);
  // Reserves, writes and commits `tokens` after what is there, in chunks. False: out of pages.
  bool extend(TestSequence& sequence, std::span<const TokenId> tokens, uint32_t chunk = 32);
  // begin() and extend() by the rest of `tokens`. REQUIRES: the pages suffice.
  TestSequence run(std::span<const TokenId> tokens, std::string_view tenant = {},
                   uint32_t chunk = 32);
  TestSequence fork(TestSequence& sequence);  // its sequence is null if the pages do not suffice
  void release(TestSequence sequence, std::string_view session = {});
  // Keys of pages that have left, the oldest first, since the list was last emptied.
  std::list<uint64_t>& gone() { return gone_; }
  bool has_prefix_caching() const { return shape_.prefix_caching; }
  bool follows() const { return shape_.policy != EvictionPolicyKind::kLru; }
  void leak();  // a test has found the cache broken: do not run its destructor

  size_t page_bytes(uint32_t group) const { return layouts_[group].page_bytes(); }

  // What check_integrity() says, and whether every table has what the next query will read.
  std::string problem(std::span<TestSequence* const> sequences) const;

 private:
  std::byte* page(uint32_t group, PageId page) const;
  void write(TestSequence& sequence, uint32_t from, std::span<const TokenId> all);
  std::string wrong_page(const TestSequence& sequence) const;

  CacheShape shape_;
  std::list<uint64_t> gone_;
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> memory_;
  std::vector<kernels::KvGroupLayout> layouts_;
  std::unique_ptr<KvCache> cache_;
};

// `count` tokens that no other `seed` gives.
std::vector<TokenId> some_tokens(uint32_t count, uint32_t seed = 0);
std::vector<TokenId> joined(std::span<const TokenId> a, std::span<const TokenId> b);

}  // namespace spillway::cache
