// One sequence's hold on the cache: block tables, the pages it writes, and the lease on the sealed
// path before them. Made by KvCache::begin() and fork(), ended by KvCache::release(); stays at one
// address. Engine thread only.
//
//   tokens   0 .. attached            sealed, in the tree, pinned by the lease
//            attached .. size()       committed in pages only we write (the open page)
//            size() .. reserved end   pages for the step to come
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/lease.h"
#include "cache/namespace_key.h"
#include "cache/page_counts.h"
#include "kernels/paged_kv.h"

namespace spillway::cache {

class Sequence {
 public:
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;
  ~Sequence();  // REQUIRES: given to KvCache::release()

  uint32_t size() const { return size_; }                    // tokens whose KV is in pages
  uint32_t cached_tokens() const { return cached_tokens_; }  // of these, found by begin()
  // [i] is the page of tokens [i * page_tokens, ...); kNoPage behind a window. Valid until the next
  // call that changes this sequence; commit() may replace pages by equal ones.
  std::span<const kernels::PageId> table(uint32_t group) const { return tables_[group]; }
  // Pages in the tables that a query at or after size() can see or write; shared ones included.
  PageCounts pages_held() const;

 private:
  friend class KvCache;
  Sequence() = default;
  uint32_t attached() const { return lease_.end(); }  // pages

  Lease lease_;
  uint32_t size_ = 0;
  uint32_t cached_tokens_ = 0;
  std::array<std::vector<kernels::PageId>, kGroupsMax> tables_;
  PageCounts first_{};                 // tables_[g] has pages from here on, none before
  PageCounts visible_from_{};          // first page that queries from size() on can see
  std::vector<TokenId> open_tokens_;   // tokens attached .. size()
  std::vector<uint32_t> breakpoints_;  // pages, ascending: window pages before them are kept
  uint32_t index_ = 0;                 // in the cache's list of sequences
};

}  // namespace spillway::cache
