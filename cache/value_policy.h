// The default policy: the page that is worth least goes first.
//
// A page is worth what a recompute of it costs times how often it is wanted, for the memory that it
// takes. How often it was used says how often it will be, and less so as time goes by. In
// logarithms, with t the time in which the worth of a page that is not used halves:
//
//   rank = last use + t * (log2(uses) + log2(cost)/2 - log2(size))
//
// which need not be computed again as time passes, so that a heap holds the order. Half of the
// cost's logarithm, for deep pages are wanted less often than their uses say.
//
// Nothing is set by hand for a workload:
//  - t is the typical (geometric mean) number of ticks from a page's first use to its second, as
//    measured here, on pages that had to be computed again as well.
//  - Uses outlive the page (ghost_list.h): most of what is wanted again was evicted before.
//  - The policy keeps the score against LRU (lru_shadow.h): pages found here that LRU would have
//    lost, against pages lost that LRU would still have. When it falls behind, t is halved, down to
//    where the order is LRU's, and doubled again as it wins, or after some time to try again. So a
//    workload whose past says little of its future costs little.
//
// Related: GDSF (Cherkasova 1998; cost, size and frequency), LRFU (Lee et al. 2001; why the order
// holds as time passes), LeCaR (Vietri et al. 2018; regret measured on ghosts).
// O(log candidates) a call; a change of trust ranks all candidates again, at most once per about a
// sixth of the tier's pages found or lost.
#pragma once

#include "cache/eviction_policy.h"
#include "cache/fair_queue.h"
#include "cache/ghost_list.h"
#include "cache/lru_shadow.h"
#include "cache/tenant_shares.h"

namespace spillway::cache {

class ValuePolicy final : public EvictionPolicy {
 public:
  explicit ValuePolicy(const EvictionOptions& options);

  PageMemory admit(uint64_t key, uint32_t tenant, uint64_t now) override;
  void found(const PageMemory& history, uint32_t pages, uint64_t now) override;
  void used(uint64_t from, uint64_t to, uint32_t pages) override;
  void gone(const EvictionCandidate& page) override;
  void add(EvictionCandidate& page) override;
  void update(EvictionCandidate& page) override;
  void remove(EvictionCandidate& page) override { queue_.remove(page); }
  EvictionCandidate* victim() override;
  uint32_t size() const override { return queue_.size(); }

  double halving_ticks() const;  // t, as it is now
  double trust() const { return trust_; }

 private:
  static constexpr double kTrustMin = 1.0 / 64;
  static constexpr double kScoreGain = 4;  // trust changes e-fold by a quarter of the tier's pages
  static constexpr double kRetry = 1.0 / 128;  // of a page won, for each page stored
  static constexpr double kGapSamples = 1000;  // the measure of t forgets over so many

  double rank(const EvictionCandidate& page) const;
  void measure_gap(const PageMemory& history, uint64_t now);
  void score(double pages);

  uint32_t double_cost_pages_;
  TenantShares shares_;
  FairQueue queue_{shares_};
  GhostList ghosts_;
  LruShadow lru_;
  double gap_log2_ = 0;  // mean of log2(ticks from a page's first use to its second)
  double gap_samples_ = 0;
  uint64_t gap_from_ = 0, gap_to_ = 0;  // the latest sample
  double trust_ = 1;
  double ranked_trust_ = 1;  // a power of two or 0: what the ranks were made with
};

}  // namespace spillway::cache
