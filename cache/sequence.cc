#include "cache/sequence.h"

#include <algorithm>

#include "runtime/check.h"

namespace spillway::cache {

Sequence::~Sequence() { CHECK(lease_.empty()); }

PageCounts Sequence::pages_held() const {
  PageCounts held{};
  for (uint32_t g = 0; g < kGroupsMax; ++g) {
    const uint32_t pages = static_cast<uint32_t>(tables_[g].size());
    held[g] = pages - std::min(pages, visible_from_[g]);
  }
  return held;
}

}  // namespace spillway::cache
