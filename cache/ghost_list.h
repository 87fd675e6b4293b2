// Histories of pages that have left a tier, by key, so that a page that comes back is not taken for
// a new one. Bounded: buckets of eight, in which the one used least recently makes way. 24 bytes a
// page remembered; O(1).
//
// A key that collides with another's gives a wrong history, which costs a little foresight and
// nothing else.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/eviction_policy.h"

namespace spillway::cache {

class GhostList {
 public:
  explicit GhostList(uint64_t pages_max);  // rounded up to a power of two

  void put(uint64_t key, const PageMemory& history);
  PageMemory take(uint64_t key);  // and forgets it
  uint64_t capacity() const { return ghosts_.size(); }

 private:
  static constexpr uint32_t kWays = 8;
  struct Ghost {
    uint64_t key = 0;
    PageMemory history;  // uses 0: free
  };
  Ghost* bucket(uint64_t key);

  std::vector<Ghost> ghosts_;
};

}  // namespace spillway::cache
