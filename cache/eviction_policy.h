// Which page of a tier goes next when the tier is full.
//
// The owner of a tier (the prefix tree; a store of a lower tier) tells the policy of every page
// that comes, is found, is used, and goes; and of the pages that may go now, the candidates. A
// policy knows nothing of trees: where a page may go only after its children, the owner offers it
// only then. A lower tier that cannot do so leaves depth_pages 0, so that equal pages go deepest
// first and a parent never before its child.
//
//   admit(key) -> { found() -> used() }* -> add() -> update()* -> remove() -> gone()
//
// Ticks are the owner's own count of uses, not time: policies have no clock and are deterministic.
// Engine thread only; nothing suspends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace spillway::cache {

// What speaks for a page beside its history: an open session or the static part of prompts, or a
// pin. Later ones go after all earlier ones of the tenant.
enum class Hold : uint8_t { kNone, kSession, kPinned };

// One page that may go. Owned by the tier; between add() and remove() it stays where it is, its key
// and tenant do not change, and changes of the rest are followed by update().
struct EvictionCandidate {
  uint64_t key = 0;          // names the page; the same when it comes back
  uint64_t last_use = 0;     // tick
  uint32_t uses = 1;         // requests that went through the page, remembered ones included
  uint32_t depth_pages = 0;  // pages of its path, itself included: what a recompute costs
  uint32_t tenant = 0;       // a small number of the owner's choice
  float size = 1;            // memory that it frees, where pages differ in it
  Hold hold = Hold::kNone;

  // The policy's own, for its candidates.
  double policy_rank = 0;
  uint32_t policy_index = 0;
  uint32_t policy_credit = 0;
};

// What is known of a page that was here before. uses 0: nothing.
struct PageMemory {
  uint64_t last_use = 0;
  uint32_t uses = 0;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // A page was stored for the tenant, at tick `now`.
  virtual PageMemory admit(uint64_t key, uint32_t tenant, uint64_t now) = 0;
  // A request found `pages` pages here, which had this history.
  virtual void found(const PageMemory& history, uint32_t pages, uint64_t now) = 0;
  // The last use of `pages` pages was `from` (0: they are new) and now is `to`.
  virtual void used(uint64_t from, uint64_t to, uint32_t pages) = 0;
  // The page has left the tier. It is no candidate any more. Only key, tenant and history count.
  virtual void gone(const EvictionCandidate& page) = 0;

  virtual void add(EvictionCandidate& page) = 0;
  virtual void update(EvictionCandidate& page) = 0;
  virtual void remove(EvictionCandidate& page) = 0;
  // The next to go, which stays a candidate. Pages of tenants that hold more than their share come
  // first (fair_queue.h), then those without a hold. Null: there is no candidate.
  virtual EvictionCandidate* victim() = 0;
  virtual uint32_t size() const = 0;  // candidates
};

enum class EvictionPolicyKind : uint8_t { kLru, kS3Fifo, kValue };

struct EvictionOptions {
  uint32_t capacity = 0;  // pages of the tier: how far back a policy remembers
  // Pages before one whose compute costs twice that of a first page: attention over what is before
  // it takes as long as all else.
  uint32_t double_cost_pages = 1024;
};

std::unique_ptr<EvictionPolicy> make_eviction_policy(EvictionPolicyKind kind,
                                                     const EvictionOptions& options);
// "lru", "s3fifo", "value".
std::optional<EvictionPolicyKind> parse_eviction_policy(std::string_view name);

}  // namespace spillway::cache
