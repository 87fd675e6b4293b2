// Leases on paths of the prefix tree: which entries they end at, which pages they pin, and what
// becomes of window pages when the last pin goes.
#include <algorithm>
#include <utility>

#include "cache/prefix_tree.h"
#include "runtime/check.h"

namespace spillway::cache {

Lease::Lease(Lease&& other) noexcept { take_place_of(other); }

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  reset();
  take_place_of(other);
  return *this;
}

void Lease::take_place_of(Lease& other) {
  if (other.node_ == nullptr) return;
  tree_ = other.tree_;
  node_ = other.node_;
  end_ = other.end_;
  first_ = other.first_;
  kind_ = other.kind_;
  is_use_ = other.is_use_;
  tree_->remove_from_list(other);
  tree_->add_to_list(*this, *node_);
  other.node_ = nullptr;
}

void Lease::reset() {
  if (node_ != nullptr) tree_->drop(*this);
}

void PrefixTree::add_to_list(Lease& lease, Node& node) {
  lease.node_ = &node;
  lease.previous_ = nullptr;
  lease.next_ = node.leases;
  if (lease.next_ != nullptr) lease.next_->previous_ = &lease;
  node.leases = &lease;
}

void PrefixTree::remove_from_list(Lease& lease) {
  (lease.previous_ == nullptr ? lease.node_->leases : lease.previous_->next_) = lease.next_;
  if (lease.next_ != nullptr) lease.next_->previous_ = lease.previous_;
}

// Makes the lease end after page end - 1, which `node` holds. Pins are the caller's affair.
void PrefixTree::link(Lease& lease, Node& node, uint32_t end) {
  lease.tree_ = this;
  lease.end_ = end;
  add_to_list(lease, node);
  if (lease.kind_ == LeaseKind::kSession) ++session_leases_;
  if (end > 0) ++node.at(end - 1).leases[static_cast<size_t>(lease.kind_)];
}

void PrefixTree::unlink(Lease& lease) {
  remove_from_list(lease);
  if (lease.kind_ == LeaseKind::kSession) --session_leases_;
  if (lease.end_ > 0) {
    uint32_t& leases = lease.node_->at(lease.end_ - 1).leases[static_cast<size_t>(lease.kind_)];
    CHECK(leases > 0);
    --leases;
  }
  lease.node_ = nullptr;
}

void PrefixTree::pin_range(const Lease& lease) {
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    visit_path(lease.node_, lease.end_, lease.first_[g], [&](Entry& entry) {
      const PageId page = entry.pages[g];
      CHECK(page != kNoPage);
      if (groups_[g].window > 0 && windows_[g].listed(page)) windows_[g].unlist(page);
      groups_[g].pool->pin(page);
    });
  }
  ++version_;
}

void PrefixTree::unpin_page(Entry& entry, uint32_t group) {
  const PageId page = entry.pages[group];
  PagePool& pool = *groups_[group].pool;
  pool.unpin(page);
  ++version_;
  if (pool.pins(page) > 0 || groups_[group].window == 0) return;
  const bool session = entry.soft_windows[group] > 0;
  if (entry.keep[group] || session) {
    windows_[group].list(page, session);
  } else {
    release_page(entry, group);
  }
}

// Counts a soft lease in or out of the window pages before its end.
void PrefixTree::soften_range(const Lease& lease, bool soft) {
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].window == 0) continue;
    visit_path(lease.node_, lease.end_, lease.first_[g], [&](Entry& entry) {
      CHECK(soft || entry.soft_windows[g] > 0);
      entry.soft_windows[g] += soft ? 1 : -1;
      const PageId page = entry.pages[g];
      const bool session = entry.soft_windows[g] > 0;
      if (page == kNoPage || !windows_[g].listed(page)) return;
      if (windows_[g].listed_as_session(page) == session) return;
      windows_[g].unlist(page);
      windows_[g].list(page, session);
      entry.keep[g] = true;  // it stays until its turn comes
    });
  }
}

Lease PrefixTree::pin_at(Node& node, uint32_t end, const PageCounts& first) {
  Lease lease;
  lease.first_ = first;
  link(lease, node, end);
  pin_range(lease);
  settle(lease.node_);
  return lease;
}

Lease PrefixTree::pin(const Namespace& space, const Point& point) {
  PageCounts first{};
  for (uint32_t g = 0; g < groups_.size(); ++g) first[g] = first_visible(g, point.end);
  if (point.node == nullptr) return pin_at(space_of(space).root, 0, first);
  count_found(point);
  return pin_at(*point.node, point.end, first);
}

Lease PrefixTree::pin_for_copy(const Point& point, bool with_windows) {
  CHECK(point.end > 0);
  PageCounts first{};
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    const bool none = groups_[g].window > 0 && !with_windows;
    first[g] = none ? point.end : first_visible(g, point.end);
  }
  Lease lease = pin_at(*point.node, point.end, first);
  lease.is_use_ = false;
  return lease;
}

Lease PrefixTree::pin_transient() {
  // Shorter than any identity that make_namespace() gives: it can be nobody else's.
  Namespace name;
  name.identity = "transient " + std::to_string(transient_count_++);
  Space& space = space_of(name);
  space.transient = true;
  return pin_at(space.root, 0, {});
}

Lease PrefixTree::pin_again(const Lease& other) {
  CHECK(other.tree_ == this);
  CHECK(other.kind_ == LeaseKind::kPin);
  return pin_at(*other.node_, other.end_, other.first_);
}

// Each page that a request finds has been wanted once more. Neighbours mostly have one history.
void PrefixTree::count_found(const Point& point) {
  PageMemory history;
  uint32_t pages = 0;
  visit_path(point.node, point.end, 0, [&](Entry& entry) {
    if (pages > 0 && (entry.uses != history.uses || entry.last_use != history.last_use)) {
      policy_.found(history, pages, tick_);
      pages = 0;
    }
    history = {entry.last_use, entry.uses++};
    ++pages;
  });
  if (pages > 0) policy_.found(history, pages, tick_);
}

// A lease on the path has ended: that was the last use of all its pages.
void PrefixTree::mark_used(Node& node, uint32_t end) {
  ++tick_;
  if (node.space->transient) return;
  uint64_t from = 0;
  uint32_t pages = 0;
  visit_path(&node, end, 0, [&](Entry& entry) {
    if (pages > 0 && entry.last_use != from) {
      policy_.used(from, tick_, pages);
      pages = 0;
    }
    from = entry.last_use;
    entry.last_use = tick_;
    ++pages;
  });
  policy_.used(from, tick_, pages);
}

Lease PrefixTree::soften_at(Node& node, uint32_t end, LeaseKind kind) {
  CHECK(is_soft(kind));
  CHECK(end > 0);
  Lease lease;
  lease.kind_ = kind;
  for (uint32_t g = 0; g < groups_.size(); ++g) lease.first_[g] = first_visible(g, end);
  link(lease, node, end);
  soften_range(lease, true);
  settle(lease.node_);
  return lease;
}

Lease PrefixTree::soften(const Lease& other, LeaseKind kind) {
  CHECK(other.tree_ == this);
  return soften_at(*other.node_, other.end_, kind);
}

Lease PrefixTree::keep(const Point& point, LeaseKind kind) {
  return soften_at(*point.node, point.end, kind);
}

void PrefixTree::drop(Lease& lease) {
  Node* node = lease.node_;
  if (lease.kind_ == LeaseKind::kPin) {
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      visit_path(node, lease.end_, lease.first_[g], [&](Entry& entry) { unpin_page(entry, g); });
    }
    if (lease.end_ > 0 && lease.is_use_) mark_used(*node, lease.end_);
  } else {
    soften_range(lease, false);
  }
  unlink(lease);
  settle(node);
}

void PrefixTree::keep_window(const Lease& lease, uint32_t boundary) {
  CHECK(boundary <= lease.end_);
  if (lease.node_->space->transient) return;
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    const uint32_t first = first_visible(g, boundary);
    if (groups_[g].window == 0 || first < lease.first_[g]) continue;
    Node* node = lease.node_;
    while (node->parent != nullptr && node->start >= boundary) node = node->parent;
    visit_path(node, boundary, first, [&](Entry& entry) { entry.keep[g] = true; });
  }
}

void PrefixTree::give_back_before(Lease& lease, uint32_t group, uint32_t first) {
  CHECK(groups_[group].window > 0);
  const uint32_t from = lease.first_[group];
  if (first <= from) return;
  lease.first_[group] = first;
  const uint32_t end = std::min(first, lease.end_);
  Node* node = lease.node_;
  while (node->parent != nullptr && node->start >= end) node = node->parent;
  visit_path(node, end, from, [&](Entry& entry) { unpin_page(entry, group); });
}

PageCounts PrefixTree::unpinned(const Point& usable) const {
  PageCounts counts{};
  if (usable.node == nullptr) return counts;
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    visit_path(usable.node, usable.end, first_visible(g, usable.end), [&](const Entry& entry) {
      if (groups_[g].pool->pins(entry.pages[g]) == 0) ++counts[g];
    });
  }
  return counts;
}

void PrefixTree::copy_tables(const Lease& lease, Tables& tables) const {
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    uint32_t position = lease.end_;
    visit_path(lease.node_, lease.end_, lease.first_[g],
               [&](const Entry& entry) { tables[g][--position] = entry.pages[g]; });
  }
}

}  // namespace spillway::cache
