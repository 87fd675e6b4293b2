// A policy that also tells somebody else of the pages that leave: a model that follows what a cache
// does, or a tier below.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "cache/eviction_policy.h"

namespace spillway::cache {

class ObservedPolicy final : public EvictionPolicy {
 public:
  using Gone = std::function<void(const EvictionCandidate& page)>;

  ObservedPolicy(std::unique_ptr<EvictionPolicy> policy, Gone gone)
      : policy_(std::move(policy)), gone_(std::move(gone)) {}

  PageMemory admit(uint64_t key, uint32_t tenant, uint64_t now) override {
    return policy_->admit(key, tenant, now);
  }
  void found(const PageMemory& history, uint32_t pages, uint64_t now) override {
    policy_->found(history, pages, now);
  }
  void used(uint64_t from, uint64_t to, uint32_t pages) override { policy_->used(from, to, pages); }
  void gone(const EvictionCandidate& page) override {
    policy_->gone(page);
    gone_(page);
  }
  void add(EvictionCandidate& page) override { policy_->add(page); }
  void update(EvictionCandidate& page) override { policy_->update(page); }
  void remove(EvictionCandidate& page) override { policy_->remove(page); }
  EvictionCandidate* victim() override { return policy_->victim(); }
  uint32_t size() const override { return policy_->size(); }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
  Gone gone_;
};

}  // namespace spillway::cache
