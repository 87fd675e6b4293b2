#include "cache/window_pages.h"

#include "runtime/check.h"

namespace spillway::cache {

void WindowPages::store(PageId page, uint32_t tenant) {
  Link& link = links_[index_of(page)];
  link.key = index_of(page);
  link.tenant = tenant;
  shares_->charge(tenant);
}

void WindowPages::erase(PageId page) {
  if (listed(page)) unlist(page);
  shares_->discharge(links_[index_of(page)].tenant);
}

void WindowPages::list(PageId page, bool session) {
  Link& link = links_[index_of(page)];
  CHECK(!link.listed);
  link.listed = true;
  link.hold = session ? Hold::kSession : Hold::kNone;
  link.policy_rank = static_cast<double>(++listings_);
  queue_->add(link);
}

void WindowPages::unlist(PageId page) {
  Link& link = links_[index_of(page)];
  CHECK(link.listed);
  queue_->remove(link);
  link.listed = false;
}

PageId WindowPages::next_to_go() const {
  const EvictionCandidate* front = queue_->front();
  return front == nullptr ? kNoPage : PageId{static_cast<uint32_t>(front->key)};
}

}  // namespace spillway::cache
