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
  if (lease.kind_ == LeaseKind::kSoft) ++soft_leases_;
  if (end == 0) return;
  Entry& entry = node.at(end - 1);
  ++(lease.kind_ == LeaseKind::kPin ? entry.pin_leases : entry.soft_leases);
}

void PrefixTree::unlink(Lease& lease) {
  remove_from_list(lease);
  if (lease.kind_ == LeaseKind::kSoft) --soft_leases_;
  if (lease.end_ > 0) {
    Entry& entry = lease.node_->at(lease.end_ - 1);
    uint32_t& leases = lease.kind_ == LeaseKind::kPin ? entry.pin_leases : entry.soft_leases;
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
  return pin_at(*point.node, point.end, first);
}

Lease PrefixTree::pin_transient() {
  // Shorter than any identity that make_namespace() gives: it can be nobody else's.
  Namespace name{"transient " + std::to_string(transient_count_++), 0};
  Space& space = space_of(name);
  space.transient = true;
  return pin_at(space.root, 0, {});
}

Lease PrefixTree::pin_again(const Lease& other) {
  CHECK(other.tree_ == this);
  CHECK(other.kind_ == LeaseKind::kPin);
  return pin_at(*other.node_, other.end_, other.first_);
}

Lease PrefixTree::soften(const Lease& other) {
  CHECK(other.tree_ == this);
  CHECK(other.end_ > 0);
  Lease lease;
  lease.kind_ = LeaseKind::kSoft;
  for (uint32_t g = 0; g < groups_.size(); ++g) lease.first_[g] = first_visible(g, other.end_);
  link(lease, *other.node_, other.end_);
  soften_range(lease, true);
  settle(lease.node_);
  return lease;
}

void PrefixTree::drop(Lease& lease) {
  Node* node = lease.node_;
  if (lease.kind_ == LeaseKind::kPin) {
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      visit_path(node, lease.end_, lease.first_[g], [&](Entry& entry) { unpin_page(entry, g); });
    }
    if (lease.end_ > 0) {
      node->at(lease.end_ - 1).last_use = ++tick_;
      if (lease.end_ == node->end()) node->last_use = tick_;
    }
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
