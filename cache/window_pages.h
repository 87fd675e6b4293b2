// The sealed pages of a window group: where in the tree each one is, and which of those that nobody
// pins was used least recently. Window pages are evicted one by one, apart from the full group's
// pages of the same tokens; those under a session's soft lease go last.
//
// Owned by the prefix tree; engine thread only; every call is O(1).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cache/page_pool.h"

namespace spillway::cache {

struct Node;

class WindowPages {
 public:
  struct Place {
    Node* node = nullptr;
    uint32_t position = 0;  // page of the path
  };

  explicit WindowPages(uint32_t capacity) : links_(capacity) {}

  void set_place(PageId page, Place place) { links_[index_of(page)].place = place; }
  Place place(PageId page) const { return links_[index_of(page)].place; }

  // The page may be evicted from now on. It becomes the one used last of its kind.
  void list(PageId page, bool session);
  void unlist(PageId page);  // REQUIRES: listed
  bool listed(PageId page) const { return links_[index_of(page)].listed; }
  bool listed_as_session(PageId page) const { return links_[index_of(page)].session; }
  PageId oldest() const;  // the next to go; kNoPage if none is listed
  uint32_t listed_count() const { return listed_count_; }

 private:
  struct Link {
    Place place;
    PageId older = kNoPage, newer = kNoPage;
    bool listed = false, session = false;
  };
  struct Ends {
    PageId oldest = kNoPage, newest = kNoPage;
  };

  std::vector<Link> links_;   // [page]
  std::array<Ends, 2> ends_;  // [session]
  uint32_t listed_count_ = 0;
};

}  // namespace spillway::cache
