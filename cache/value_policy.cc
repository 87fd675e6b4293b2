#include "cache/value_policy.h"

#include <algorithm>
#include <cmath>

namespace spillway::cache {
namespace {

// Most reuse comes after many times the tier's size was stored in between, in small tiers above
// all.
uint64_t ghosts_for(uint32_t capacity) {
  return std::clamp<uint64_t>(uint64_t{capacity} * 4, 1u << 16, 1u << 22);
}

}  // namespace

ValuePolicy::ValuePolicy(const EvictionOptions& options)
    : double_cost_pages_(std::max(1u, options.double_cost_pages)),
      ghosts_(ghosts_for(options.capacity)) {}

double ValuePolicy::halving_ticks() const {
  return gap_samples_ == 0 ? 0 : std::exp2(gap_log2_) * ranked_trust_;
}

double ValuePolicy::rank(const EvictionCandidate& page) const {
  const double cost = 1 + static_cast<double>(page.depth_pages) / double_cost_pages_;
  const double worth = std::log2(std::max(1u, page.uses)) + std::log2(cost) / 2 -
                       std::log2(static_cast<double>(page.size));
  return static_cast<double>(page.last_use) + halving_ticks() * worth;
}

// Neighbours that come back together count once: long prompts say no more than short ones.
void ValuePolicy::measure_gap(const PageMemory& history, uint64_t now) {
  if (history.uses != 1 || (history.last_use == gap_from_ && now == gap_to_)) return;
  gap_from_ = history.last_use;
  gap_to_ = now;
  const uint64_t gap = now > history.last_use ? now - history.last_use : 1;
  gap_samples_ = std::min(gap_samples_ + 1, kGapSamples);
  gap_log2_ += (std::log2(static_cast<double>(gap)) - gap_log2_) / gap_samples_;
}

void ValuePolicy::score(double pages) {
  const double tier_pages = static_cast<double>(std::max<uint64_t>(1, shares_.pages()));
  trust_ = std::clamp(trust_ * std::exp(kScoreGain * pages / tier_pages), kTrustMin, 1.0);
}

PageMemory ValuePolicy::admit(uint64_t key, uint32_t tenant, uint64_t now) {
  shares_.charge(tenant);
  if (trust_ < 1) score(kRetry);
  const PageMemory history = ghosts_.take(key);
  if (history.uses == 0) return history;
  measure_gap(history, now);
  if (lru_.holds(history.last_use)) score(-1);
  return history;
}

void ValuePolicy::found(const PageMemory& history, uint32_t pages, uint64_t now) {
  measure_gap(history, now);
  if (!lru_.holds(history.last_use)) score(pages);
}

void ValuePolicy::used(uint64_t from, uint64_t to, uint32_t pages) {
  lru_.used(from, to, pages, shares_.pages());
}

void ValuePolicy::gone(const EvictionCandidate& page) {
  shares_.discharge(page.tenant);
  ghosts_.put(page.key, {page.last_use, std::max(1u, page.uses)});
}

void ValuePolicy::add(EvictionCandidate& page) {
  page.policy_rank = rank(page);
  queue_.add(page);
}

void ValuePolicy::update(EvictionCandidate& page) {
  page.policy_rank = rank(page);
  queue_.update(page);
}

// Ranks are made with powers of two, so that they seldom change; all candidates' together.
EvictionCandidate* ValuePolicy::victim() {
  const bool is_whole_again = trust_ == 1 && ranked_trust_ < 1;
  if (trust_ <= ranked_trust_ / 2 || trust_ >= ranked_trust_ * 2 || is_whole_again) {
    ranked_trust_ = std::exp2(std::round(std::log2(trust_)));
    queue_.rerank([this](EvictionCandidate& page) { page.policy_rank = rank(page); });
  }
  return queue_.front();
}

}  // namespace spillway::cache
