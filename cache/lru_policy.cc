#include "cache/lru_policy.h"

namespace spillway::cache {

PageMemory LruPolicy::admit(uint64_t, uint32_t tenant, uint64_t) {
  shares_.charge(tenant);
  return {};
}

void LruPolicy::add(EvictionCandidate& page) {
  page.policy_rank = static_cast<double>(page.last_use);
  queue_.add(page);
}

void LruPolicy::update(EvictionCandidate& page) {
  page.policy_rank = static_cast<double>(page.last_use);
  queue_.update(page);
}

}  // namespace spillway::cache
