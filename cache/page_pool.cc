#include "cache/page_pool.h"

#include <numeric>

#include "runtime/check.h"

namespace spillway::cache {

PagePool::PagePool(std::byte* memory, size_t page_bytes, uint32_t capacity)
    : memory_(memory), page_bytes_(page_bytes), pages_(capacity) {
  CHECK(memory != nullptr);
  CHECK(reinterpret_cast<uintptr_t>(memory) % kernels::kPageAlignment == 0);
  CHECK(page_bytes > 0);
  CHECK(page_bytes % kernels::kPageAlignment == 0);
  CHECK(capacity >= 1);
  CHECK(PageId{capacity} != kNoPage);
  free_.reserve(capacity);
  for (uint32_t i = capacity; i > 0; --i) free_.push_back(PageId{i - 1});
  counts_[static_cast<size_t>(PageState::kFree)] = capacity;
}

uint32_t PagePool::checked(PageId page) const {
  CHECK(index_of(page) < pages_.size());
  return index_of(page);
}

PageId PagePool::acquire(PageState to) {
  if (free_.empty()) return kNoPage;
  const PageId page = free_.back();
  free_.pop_back();
  move(page, to);
  return page;
}

void PagePool::move(PageId page, PageState to) {
  Page& record = pages_[checked(page)];
  CHECK(is_legal(record.state, to));
  CHECK(record.pins == 0);
  --counts_[static_cast<size_t>(record.state)];
  ++counts_[static_cast<size_t>(to)];
  record.state = to;
  if (to == PageState::kFree) free_.push_back(page);
}

void PagePool::move_to(std::byte* memory) {
  CHECK(memory != nullptr);
  CHECK(reinterpret_cast<uintptr_t>(memory) % kernels::kPageAlignment == 0);
  CHECK(count(PageState::kFree) + count(PageState::kOrphaned) == capacity());
  memory_ = memory;
}

void PagePool::pin(PageId page) {
  Page& record = pages_[checked(page)];
  CHECK(record.state == PageState::kSealed);
  if (record.pins++ == 0) ++pinned_;
}

void PagePool::unpin(PageId page) {
  Page& record = pages_[checked(page)];
  CHECK(record.pins > 0);
  if (--record.pins == 0) --pinned_;
}

void PagePool::check_counters() const {
  CHECK(std::accumulate(counts_.begin(), counts_.end(), uint64_t{0}) == pages_.size());
  CHECK(count(PageState::kFree) == free_.size());
  CHECK(pinned_ <= count(PageState::kSealed));
}

std::string PagePool::check_integrity() const {
  std::array<uint32_t, kPageStates> counts{};
  uint32_t pinned = 0;
  for (const Page& page : pages_) {
    ++counts[static_cast<size_t>(page.state)];
    if (page.pins > 0) ++pinned;
    if (page.pins > 0 && page.state != PageState::kSealed) return "a page not sealed has pins";
  }
  if (counts != counts_) return "the counters of page states are not what a recount gives";
  if (pinned != pinned_) return "the counter of pinned pages is not what a recount gives";
  if (free_.size() != count(PageState::kFree)) return "the free list misses or repeats a page";
  std::vector<bool> seen(pages_.size());
  for (PageId page : free_) {
    if (state(page) != PageState::kFree) return "a page in the free list is not free";
    if (seen[index_of(page)]) return "a page is in the free list twice";
    seen[index_of(page)] = true;
  }
  return {};
}

}  // namespace spillway::cache
