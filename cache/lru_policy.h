// The reference policy: the page used least recently goes first. O(log candidates).
#pragma once

#include "cache/eviction_policy.h"
#include "cache/fair_queue.h"
#include "cache/tenant_shares.h"

namespace spillway::cache {

class LruPolicy final : public EvictionPolicy {
 public:
  PageMemory admit(uint64_t key, uint32_t tenant, uint64_t now) override;
  void found(const PageMemory&, uint32_t, uint64_t) override {}
  void used(uint64_t, uint64_t, uint32_t) override {}
  void gone(const EvictionCandidate& page) override { shares_.discharge(page.tenant); }
  void add(EvictionCandidate& page) override;
  void update(EvictionCandidate& page) override;
  void remove(EvictionCandidate& page) override { queue_.remove(page); }
  EvictionCandidate* victim() override { return queue_.front(); }
  uint32_t size() const override { return queue_.size(); }

 private:
  TenantShares shares_;
  FairQueue queue_{shares_};
};

}  // namespace spillway::cache
