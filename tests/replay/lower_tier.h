// A tier below the device, as far as a replay needs it: which blocks it holds, under a real policy.
// A block goes only when none that follows it is here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "cache/eviction_policy.h"

namespace spillway::replay {

class LowerTier {
 public:
  struct Block {
    uint64_t key = 0, parent = 0;
    uint32_t depth = 0, uses = 1;
    uint64_t last_use = 0;
  };
  using Evicted = std::function<void(const Block&)>;

  LowerTier(uint32_t capacity, std::unique_ptr<cache::EvictionPolicy> policy, Evicted evicted)
      : capacity_(capacity), policy_(std::move(policy)), evicted_(std::move(evicted)) {}

  void put(const Block& block, uint64_t now);  // one that is here already counts as used
  bool holds(uint64_t key) const { return held_.contains(key); }
  void find(uint64_t key, uint64_t now);  // REQUIRES: held
  void take(uint64_t key, uint64_t now);  // finds it, and it moves to another tier

 private:
  struct Held {
    cache::EvictionCandidate candidate;
    Block block;
    bool offered = false;  // to the policy
  };
  void offer(uint64_t key);
  void remove(uint64_t key);

  uint32_t capacity_;
  std::unique_ptr<cache::EvictionPolicy> policy_;
  Evicted evicted_;
  std::unordered_map<uint64_t, std::unique_ptr<Held>> held_;
  std::unordered_map<uint64_t, uint32_t> children_;  // of blocks, here or not, that are here
};

}  // namespace spillway::replay
