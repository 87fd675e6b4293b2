// Which unpinned leaf of the prefix tree gives up a page next.
//
// The tree tells the policy of every leaf that may go, of changes to what it says about it, and of
// leaves that may go no longer. A victim loses its last page; what is left of it is reported by
// update(), or it is removed. Engine thread only.
#pragma once

#include <cstdint>

namespace spillway::cache {

// A leaf that may go. Owned by the tree; `policy_index` is the policy's own to use.
struct EvictionCandidate {
  uint64_t last_use = 0;     // tick of the last use of the leaf's last page
  bool session = false;      // under a session's soft lease
  uint32_t depth_pages = 0;  // pages before and including the leaf's last: what a recompute costs
  uint32_t policy_index = 0;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual void add(EvictionCandidate& leaf) = 0;
  virtual void update(EvictionCandidate& leaf) = 0;  // its fields have changed
  virtual void remove(EvictionCandidate& leaf) = 0;
  // The next to go, which stays. Candidates with `session` come after all others. Null: none.
  virtual EvictionCandidate* victim() = 0;
  virtual uint32_t size() const = 0;
};

}  // namespace spillway::cache
