#include "cache/lru_shadow.h"

#include <algorithm>

#include "runtime/check.h"

namespace spillway::cache {

void LruShadow::used(uint64_t from, uint64_t to, uint32_t pages, uint64_t capacity) {
  if (from > horizon_ && from - horizon_ <= counts_.size()) {
    // A page whose history was lost is still counted at its former use: never take out more.
    uint32_t& count = counts_[from - horizon_ - 1];
    const uint32_t moved = std::min(count, pages);
    count -= moved;
    pages_ -= moved;
  }
  if (to > horizon_ + counts_.size() + kTicksMax) {  // a leap: nothing from before is left
    counts_.clear();
    pages_ = 0;
    horizon_ = to - 1;
  }
  if (to <= horizon_) return;
  if (to - horizon_ > counts_.size()) counts_.resize(to - horizon_);
  counts_[to - horizon_ - 1] += pages;
  pages_ += pages;
  while (counts_.size() > kTicksMax || pages_ > capacity) {
    CHECK(!counts_.empty());
    pages_ -= counts_.front();
    counts_.pop_front();
    ++horizon_;
  }
}

}  // namespace spillway::cache
