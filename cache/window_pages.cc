#include "cache/window_pages.h"

#include "runtime/check.h"

namespace spillway::cache {

void WindowPages::list(PageId page, bool session) {
  Link& link = links_[index_of(page)];
  CHECK(!link.listed);
  Ends& ends = ends_[session];
  link.listed = true;
  link.session = session;
  link.older = ends.newest;
  link.newer = kNoPage;
  (ends.newest == kNoPage ? ends.oldest : links_[index_of(ends.newest)].newer) = page;
  ends.newest = page;
  ++listed_count_;
}

void WindowPages::unlist(PageId page) {
  Link& link = links_[index_of(page)];
  CHECK(link.listed);
  Ends& ends = ends_[link.session];
  (link.older == kNoPage ? ends.oldest : links_[index_of(link.older)].newer) = link.newer;
  (link.newer == kNoPage ? ends.newest : links_[index_of(link.newer)].older) = link.older;
  link.listed = false;
  --listed_count_;
}

PageId WindowPages::oldest() const {
  return ends_[0].oldest != kNoPage ? ends_[0].oldest : ends_[1].oldest;
}

}  // namespace spillway::cache
