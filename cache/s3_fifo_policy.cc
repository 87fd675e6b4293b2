#include "cache/s3_fifo_policy.h"

#include <algorithm>

namespace spillway::cache {
namespace {

constexpr uint32_t kInSmall = 0;  // policy_credit of a page in the main queue is 1 + its credit

}  // namespace

S3FifoPolicy::S3FifoPolicy(const EvictionOptions& options)
    : ghosts_(std::max<uint64_t>(options.capacity, 1u << 16)) {}

PageMemory S3FifoPolicy::admit(uint64_t key, uint32_t tenant, uint64_t) {
  shares_.charge(tenant);
  return ghosts_.take(key);
}

void S3FifoPolicy::gone(const EvictionCandidate& page) {
  shares_.discharge(page.tenant);
  ghosts_.put(page.key, {page.last_use, std::max(1u, page.uses)});
}

void S3FifoPolicy::add(EvictionCandidate& page) {
  page.policy_rank = static_cast<double>(page.last_use);
  newest_ = std::max(newest_, page.last_use);
  if (page.uses > 1) {
    page.policy_credit = 1 + std::min(page.uses - 1, kCreditMax);
    main_.add(page);
  } else {
    page.policy_credit = kInSmall;
    small_.add(page);
  }
}

void S3FifoPolicy::update(EvictionCandidate& page) {
  remove(page);
  add(page);
}

void S3FifoPolicy::remove(EvictionCandidate& page) {
  (page.policy_credit == kInSmall ? small_ : main_).remove(page);
}

// The queue's turn decides between two that may both go; shares and holds come before turns.
EvictionCandidate* S3FifoPolicy::front() const {
  EvictionCandidate* small = small_.front();
  EvictionCandidate* main = main_.front();
  if (small == nullptr || main == nullptr) return small == nullptr ? main : small;
  const bool small_over = shares_.is_over(small->tenant), main_over = shares_.is_over(main->tenant);
  if (small_over != main_over) return small_over ? small : main;
  if (small->hold != main->hold) return small->hold < main->hold ? small : main;
  return uint64_t{small_.size()} * kSmallShare >= size() ? small : main;
}

EvictionCandidate* S3FifoPolicy::victim() {
  EvictionCandidate* page = front();
  while (page != nullptr && page->policy_credit > 1) {
    --page->policy_credit;
    page->policy_rank = static_cast<double>(++newest_);
    main_.update(*page);
    page = front();
  }
  return page;
}

}  // namespace spillway::cache
