// After S3-FIFO (Yang et al., SOSP 2023): pages used once wait in a small queue and leave it soon;
// those used again, or remembered from before, are in the main queue, in which a page goes round
// once more for each use since it was last looked at, three at most.
//
// Not quite the paper's: the queues are of the pages that may go, a page enters them when its path
// is free (its children gone), and its place is that of its last use then. Amortised O(log n): each
// round of a page is paid for by a use of it.
#pragma once

#include "cache/eviction_policy.h"
#include "cache/fair_queue.h"
#include "cache/ghost_list.h"
#include "cache/tenant_shares.h"

namespace spillway::cache {

class S3FifoPolicy final : public EvictionPolicy {
 public:
  explicit S3FifoPolicy(const EvictionOptions& options);

  PageMemory admit(uint64_t key, uint32_t tenant, uint64_t now) override;
  void found(const PageMemory&, uint32_t, uint64_t) override {}
  void used(uint64_t, uint64_t, uint32_t) override {}
  void gone(const EvictionCandidate& page) override;
  void add(EvictionCandidate& page) override;
  void update(EvictionCandidate& page) override;
  void remove(EvictionCandidate& page) override;
  EvictionCandidate* victim() override;
  uint32_t size() const override { return small_.size() + main_.size(); }

 private:
  static constexpr uint32_t kCreditMax = 3;
  static constexpr uint32_t kSmallShare = 10;  // the small queue keeps a tenth

  EvictionCandidate* front() const;

  TenantShares shares_;
  FairQueue small_{shares_}, main_{shares_};
  GhostList ghosts_;
  uint64_t newest_ = 0;  // the latest rank given
};

}  // namespace spillway::cache
