// The sealed pages of a window group: where in the tree each one is, and which of those that nobody
// pins goes next. Window pages are evicted one by one, apart from the full group's pages of the
// same tokens: those of tenants over their share first, then the ones used least recently; those
// under a soft lease last of their tenant's.
//
// Owned by the prefix tree; engine thread only. Listing and unlisting takes O(log pages).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/fair_queue.h"
#include "cache/page_pool.h"
#include "cache/tenant_shares.h"

namespace spillway::cache {

struct Node;

class WindowPages {
 public:
  struct Place {
    Node* node = nullptr;
    uint32_t position = 0;  // page of the path
  };

  explicit WindowPages(uint32_t capacity) : links_(capacity) {}

  void store(PageId page, uint32_t tenant);  // the tree has it from now on
  void erase(PageId page);                   // no more; unlists it
  void set_place(PageId page, Place place) { links_[index_of(page)].place = place; }
  Place place(PageId page) const { return links_[index_of(page)].place; }

  // The page may be evicted from now on. It becomes the one used last of its kind.
  void list(PageId page, bool session);
  void unlist(PageId page);  // REQUIRES: listed
  bool listed(PageId page) const { return links_[index_of(page)].listed; }
  bool listed_as_session(PageId page) const {
    return links_[index_of(page)].hold == Hold::kSession;
  }
  PageId next_to_go() const;  // kNoPage if none is listed
  uint32_t listed_count() const { return queue_->size(); }
  const TenantShares& shares() const { return *shares_; }

 private:
  // Most window pages are stored for a moment only, until a prompt's window has gone past them: a
  // tier of them is filled many times before much of what it keeps is.
  static constexpr uint64_t kActiveTurnovers = 16 * TenantShares::kActiveTurnovers;

  struct Link : EvictionCandidate {
    Place place;
    bool listed = false;
  };

  std::vector<Link> links_;  // [page]
  uint64_t listings_ = 0;    // ever
  // Apart, for the queue refers to the shares, and this object moves.
  std::unique_ptr<TenantShares> shares_ = std::make_unique<TenantShares>(kActiveTurnovers);
  std::unique_ptr<FairQueue> queue_ = std::make_unique<FairQueue>(*shares_);
};

}  // namespace spillway::cache
