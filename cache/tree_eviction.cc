// What leaves the prefix tree: leaves page by page from their ends, window pages one by one.
#include <algorithm>

#include "cache/prefix_tree.h"
#include "runtime/check.h"

namespace spillway::cache {

// Whether the leaf's last page may be evicted. A lease pins all pages before its end, so a last
// page at which none ends is not pinned.
bool PrefixTree::may_go(const Node& node) const {
  return node.parent != nullptr && node.first_child == nullptr &&
         node.entries.back().count(LeaseKind::kPin) == 0;
}

bool PrefixTree::is_bare(const Entry& entry) const {
  return std::all_of(entry.pages.begin(), entry.pages.end(),
                     [](PageId page) { return page == kNoPage; });
}

// Says of the leaf what the policy needs to know of its last page.
void PrefixTree::describe(Node& leaf) const {
  const Entry& last = leaf.entries.back();
  leaf.key = last.key.low;
  leaf.last_use = last.last_use;
  leaf.uses = last.uses;
  leaf.depth_pages = leaf.end();
  leaf.tenant = leaf.space->tenant;
  leaf.hold = last.count(LeaseKind::kKeep) > 0 ? Hold::kPinned
              : last.has_soft_lease()          ? Hold::kSession
                                               : Hold::kNone;
}

// Brings the policy up to date about `node` after a change to it, and removes what is of no use any
// more. May delete the node and ancestors of it.
void PrefixTree::settle(Node* node) {
  while (node->parent != nullptr && may_go(*node) &&
         (node->space->transient || is_bare(node->entries.back()))) {
    node = trim(*node);
  }
  if (node->parent == nullptr) {
    erase_space_if_idle(*node->space);
    return;
  }
  const bool candidate = may_go(*node);
  if (candidate) {
    describe(*node);
    node->candidate ? policy_.update(*node) : policy_.add(*node);
  } else if (node->candidate) {
    policy_.remove(*node);
  }
  node->candidate = candidate;
}

// Removes the last entry of a leaf, with its pages. Returns the node to settle.
Node* PrefixTree::trim(Node& node) {
  CHECK(may_go(node));
  shorten_soft_leases(node);
  if (node.candidate) policy_.remove(node);
  node.candidate = false;
  if (!node.space->transient) {
    describe(node);
    policy_.gone(node);
  }
  Entry& tail = node.entries.back();
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (tail.pages[g] != kNoPage) release_page(tail, g);
  }
  if (node.entries.size() > 1) {
    node.entries.pop_back();
    node.tokens.resize(node.entries.size() * page_tokens_);
    return &node;
  }
  Node* parent = node.parent;
  CHECK(node.leases == nullptr);
  detach_child(node);
  delete &node;
  --node_count_;
  return parent;
}

// Soft leases that end at the leaf's last page end one page earlier, for that page is about to go.
void PrefixTree::shorten_soft_leases(Node& node) {
  if (!node.entries.back().has_soft_lease()) return;
  const uint32_t end = node.end();
  Node* before = node.entries.size() > 1 ? &node : node.parent;
  for (Lease* lease = node.leases; lease != nullptr;) {
    Lease* next = lease->next_;
    if (lease->end_ == end) {
      CHECK(is_soft(lease->kind_));
      soften_range(*lease, false);
      unlink(*lease);
      lease->first_.fill(end);  // without its last page the window is of no use to the session
      if (end > 1) link(*lease, *before, end - 1);
    }
    lease = next;
  }
}

void PrefixTree::release_page(Entry& entry, uint32_t group) {
  const PageId page = entry.pages[group];
  if (groups_[group].window > 0) windows_[group].erase(page);
  groups_[group].pool->release(page);
  entry.pages[group] = kNoPage;
  entry.keep[group] = false;
  ++version_;
}

bool PrefixTree::evict_one(uint32_t group) {
  if (groups_[group].window > 0) {
    const PageId page = windows_[group].next_to_go();
    if (page == kNoPage) return false;
    const WindowPages::Place place = windows_[group].place(page);
    release_page(place.node->at(place.position), group);
    ++evicted_pages_[group];
    settle(place.node);
    return true;
  }
  EvictionCandidate* victim = policy_.victim();
  if (victim == nullptr) return false;
  Node& leaf = static_cast<Node&>(*victim);
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (leaf.entries.back().pages[g] != kNoPage) ++evicted_pages_[g];
  }
  settle(trim(leaf));
  return true;
}

bool PrefixTree::next_is_unheld(uint32_t group) const {
  if (groups_[group].window > 0) {
    const PageId page = windows_[group].next_to_go();
    return page != kNoPage && !windows_[group].listed_as_session(page);
  }
  const EvictionCandidate* next = policy_.victim();
  return next != nullptr && next->hold == Hold::kNone;
}

uint32_t PrefixTree::evictable(uint32_t group) const {
  if (groups_[group].window > 0) return windows_[group].listed_count();
  const PagePool& pool = *groups_[group].pool;
  return pool.count(PageState::kSealed) - pool.pinned();
}

uint64_t PrefixTree::clear() {
  const auto sealed = [&] {
    uint64_t pages = 0;
    for (const TreeGroup& group : groups_) pages += group.pool->count(PageState::kSealed);
    return pages;
  };
  const uint64_t before = sealed();
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    while (windows_[g].listed_count() > 0) CHECK(evict_one(g));
  }
  while (EvictionCandidate* victim = policy_.victim()) settle(trim(static_cast<Node&>(*victim)));
  return before - sealed();
}

void PrefixTree::erase_space_if_idle(Space& space) {
  if (space.root.first_child != nullptr || space.root.leases != nullptr) return;
  const std::string identity = space.name.identity;  // the map's own key dies with the entry
  forget_tenant(space.name.tenant);
  spaces_.erase(identity);
}

}  // namespace spillway::cache
