// The pages of one layer group: which state each is in, how many leases and transfers pin it.
// Always: the counts of all states add up to capacity; a free page has no pins.
//
// The memory is the caller's (page p lies at memory + p * page_bytes) and outlives the pool, which
// never touches it. Engine thread only; every call is O(1). Misuse (a double release, a pin on a
// page that is not sealed, a move that page_state.h does not list) is a CHECK.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/page_state.h"
#include "kernels/paged_kv.h"

namespace spillway::cache {

using kernels::kNoPage;
using kernels::PageId;

constexpr uint32_t index_of(PageId page) { return static_cast<uint32_t>(page); }

class PagePool {
 public:
  // REQUIRES: memory and page_bytes are multiples of 4 KiB, capacity >= 1.
  PagePool(std::byte* memory, size_t page_bytes, uint32_t capacity);

  // Takes a free page; kNoPage if there is none. The page freed last comes first: it is warm.
  PageId acquire(PageState to = PageState::kWritable);
  void move(PageId page, PageState to);
  void release(PageId page) { move(page, PageState::kFree); }

  // The pages lie there from now on, and what was in them is lost. REQUIRES: all are free, but for
  // orphans, whose operations write where they were told to.
  void move_to(std::byte* memory);

  void pin(PageId page);  // REQUIRES: sealed
  void unpin(PageId page);

  PageState state(PageId page) const { return pages_[checked(page)].state; }
  uint32_t pins(PageId page) const { return pages_[checked(page)].pins; }
  std::byte* data(PageId page) const { return memory_ + checked(page) * page_bytes_; }

  uint32_t count(PageState state) const { return counts_[static_cast<size_t>(state)]; }
  uint32_t pinned() const { return pinned_; }  // pages with at least one pin
  uint32_t capacity() const { return static_cast<uint32_t>(pages_.size()); }
  size_t page_bytes() const { return page_bytes_; }

  void check_counters() const;          // O(1); CHECKs
  std::string check_integrity() const;  // a full recount; empty, or what is wrong

 private:
  struct Page {
    PageState state = PageState::kFree;
    uint32_t pins = 0;
  };
  uint32_t checked(PageId page) const;

  std::byte* memory_;
  size_t page_bytes_;
  std::vector<Page> pages_;
  std::vector<PageId> free_;  // exactly the pages in kFree
  std::array<uint32_t, kPageStates> counts_{};
  uint32_t pinned_ = 0;
};

}  // namespace spillway::cache
