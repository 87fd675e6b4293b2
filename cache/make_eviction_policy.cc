#include "cache/eviction_policy.h"
#include "cache/lru_policy.h"
#include "cache/s3_fifo_policy.h"
#include "cache/value_policy.h"
#include "runtime/check.h"

namespace spillway::cache {

std::unique_ptr<EvictionPolicy> make_eviction_policy(EvictionPolicyKind kind,
                                                     const EvictionOptions& options) {
  switch (kind) {
    case EvictionPolicyKind::kLru:
      return std::make_unique<LruPolicy>();
    case EvictionPolicyKind::kS3Fifo:
      return std::make_unique<S3FifoPolicy>(options);
    case EvictionPolicyKind::kValue:
      return std::make_unique<ValuePolicy>(options);
  }
  CHECK(false);
  return nullptr;
}

std::optional<EvictionPolicyKind> parse_eviction_policy(std::string_view name) {
  if (name == "lru") return EvictionPolicyKind::kLru;
  if (name == "s3fifo") return EvictionPolicyKind::kS3Fifo;
  if (name == "value") return EvictionPolicyKind::kValue;
  return std::nullopt;
}

}  // namespace spillway::cache
