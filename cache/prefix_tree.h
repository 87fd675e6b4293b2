// A radix tree over pages: which sealed pages hold the KV of which token prefix.
//
// An edge holds the tokens of one or more pages; splits fall on page boundaries. A child is found
// by its first page's key, and its tokens are always compared. In full groups every page of a path
// is present. In window groups a page is kept while a lease pins it, and after that only if it lies
// before a breakpoint; so a match is usable up to the deepest boundary where each window group
// still has the pages that the next query sees.
//
// The tree owns the sealed pages of its pools: it is given a page by append() and releases it when
// it is evicted. Owned by KvCache; engine thread only; nothing suspends.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/eviction_policy.h"
#include "cache/lease.h"
#include "cache/namespace_key.h"
#include "cache/page_counts.h"
#include "cache/page_pool.h"
#include "cache/tree_node.h"
#include "cache/window_pages.h"

namespace spillway::cache {

// A layer group as the tree sees it.
struct TreeGroup {
  PagePool* pool = nullptr;
  uint32_t window = 0;  // tokens; 0: full attention
};

using PageSet = std::array<PageId, kGroupsMax>;  // [group]; kNoPage: none

class PrefixTree {
 public:
  // Siblings whose first keys are equal. More than one needs a hash collision; a page that would
  // make the chain longer stays out of the tree (case K17).
  static constexpr uint32_t kChainMax = 8;
  static constexpr uint32_t kSiblingsMax = 64;

  // `policy` and the pools outlive the tree.
  PrefixTree(uint32_t page_tokens, std::vector<TreeGroup> groups, KeyMode key_mode,
             EvictionPolicy& policy);
  ~PrefixTree();  // REQUIRES: no lease
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // A point on a path: after page end - 1, which `node` holds; end 0: the root, or null for none.
  struct Point {
    Node* node = nullptr;
    uint32_t end = 0;
  };
  struct Match {
    Point usable;             // what a sequence can start from
    Point path;               // all of it, window pages or not
    uint32_t path_pages = 0;  // its length
  };
  // The longest match within `pages_max` pages. `tokens` has at least that many pages.
  Match match(const PromptKeys& keys, std::span<const TokenId> tokens, uint32_t pages_max) const;
  // Where `tokens` leave the cached paths: the first token that differs from the cached path that
  // agrees longest. Nothing when no cached path goes on from where the match ends. Looks at no more
  // than kSiblingsMax paths.
  std::optional<uint32_t> divergence(const Match& match, const Namespace& space,
                                     std::span<const TokenId> tokens) const;
  // Pages under `usable` that a lease there would pin and that nobody pins now.
  PageCounts unpinned(const Point& usable) const;

  // First page of a window group that queries at `boundary` pages and after can see; 0 for full.
  uint32_t first_visible(uint32_t group, uint32_t boundary) const;

  // A lease on the path to `point`, which match() has just returned; at a root if it is empty.
  Lease pin(const Namespace& space, const Point& point);
  // The same for who copies pages elsewhere: it counts as no use of them. Without windows it pins
  // the pages of full groups only. REQUIRES: point.end > 0.
  Lease pin_for_copy(const Point& point, bool with_windows);
  Lease pin_transient();  // at a root of its own
  Lease pin_again(const Lease& other);
  Lease soften(const Lease& other, LeaseKind kind);  // a soft lease on the same path
  // A soft lease on a path that match() has just returned. REQUIRES: point.end > 0.
  Lease keep(const Point& point, LeaseKind kind);

  // Advances a pinning lease by one page with these tokens. `pages` are writable and become the
  // tree's, or are released where the tree has one; then `pages` holds the tree's, pinned by the
  // lease. In groups where the position is before lease.first() there is no page. False: the chain
  // is full; nothing has changed.
  bool append(Lease& lease, std::span<const TokenId> tokens, PageSet& pages);

  // Keeps the window pages that `boundary` needs, as far as the lease still pins all of them.
  void keep_window(const Lease& lease, uint32_t boundary);
  // The lease no longer needs the group's pages before `first`.
  void give_back_before(Lease& lease, uint32_t group, uint32_t first);

  // Frees one page of the group (in full groups: an entry with all its pages). False: none can go.
  bool evict_one(uint32_t group);
  uint32_t evictable(uint32_t group) const;
  // Whether the next page of the group to go is held by no session, static part or pin.
  bool next_is_unheld(uint32_t group) const;
  uint64_t clear();  // evicts all that is not pinned; pages freed

  uint64_t version() const { return version_; }
  uint64_t node_count() const { return node_count_; }
  uint64_t space_count() const { return spaces_.size(); }
  uint32_t session_leases() const { return session_leases_; }  // that are not empty
  uint64_t remapped_pages() const { return remapped_pages_; }
  uint64_t evicted_pages(uint32_t group) const { return evicted_pages_[group]; }

  // Writes the pages that the lease pins to tables[group][position], each of lease.end() entries.
  using Tables = std::array<std::vector<PageId>, kGroupsMax>;
  void copy_tables(const Lease& lease, Tables& tables) const;
  // Every invariant by a full walk, pins recounted from the leases. Empty, or what is wrong.
  std::string check_integrity() const;

 private:
  friend class Lease;
  friend class TreeCheck;

  struct ChildRef {
    const Node* parent;
    PageKey key;
    friend bool operator==(const ChildRef&, const ChildRef&) = default;
  };
  struct ChildRefHash {
    size_t operator()(const ChildRef& ref) const {
      return ref.key.low ^ (reinterpret_cast<uintptr_t>(ref.parent) * 0x9e3779b97f4a7c15u);
    }
  };

  // prefix_tree.cc: shape
  Node* find_child(const Node& parent, const PageKey& key, const TokenId* page) const;
  bool same_tokens(const TokenId* a, const TokenId* b, uint32_t pages) const;
  uint32_t common_pages(const TokenId* a, const TokenId* b, uint32_t pages) const;
  Point usable_before(Node* node, uint32_t end) const;
  uint32_t chain_length(const Node& parent, const PageKey& key) const;
  void attach_child(Node& parent, Node& child);
  void detach_child(Node& child);
  void split(Node& node, uint32_t at);
  Node* next_entry(Lease& lease, std::span<const TokenId> tokens, const PageKey& key);
  void adopt_page(Entry& entry, uint32_t group, WindowPages::Place place, PageId& ours);
  Space& space_of(const Namespace& name);
  uint32_t number_tenant(const std::string& name);
  void forget_tenant(const std::string& name);

  // tree_leases.cc: leases, pins, windows
  // Calls visit(entry) for the positions end - 1 down to `first`. `node` holds page end - 1.
  template <class Visit>
  static void visit_path(Node* node, uint32_t end, uint32_t first, Visit visit) {
    for (uint32_t position = end; position > first; --position) {
      while (position - 1 < node->start) node = node->parent;
      visit(node->at(position - 1));
    }
  }
  void add_to_list(Lease& lease, Node& node);
  void remove_from_list(Lease& lease);
  Lease pin_at(Node& node, uint32_t end, const PageCounts& first);
  Lease soften_at(Node& node, uint32_t end, LeaseKind kind);
  void count_found(const Point& point);
  void mark_used(Node& node, uint32_t end);
  void link(Lease& lease, Node& node, uint32_t end);
  void unlink(Lease& lease);
  void drop(Lease& lease);
  void pin_range(const Lease& lease);
  void unpin_page(Entry& entry, uint32_t group);
  void soften_range(const Lease& lease, bool soft);
  void shorten_soft_leases(Node& node);

  // tree_eviction.cc: what goes
  bool may_go(const Node& node) const;
  bool is_bare(const Entry& entry) const;
  void describe(Node& leaf) const;
  void settle(Node* node);
  Node* trim(Node& node);
  void release_page(Entry& entry, uint32_t group);
  void erase_space_if_idle(Space& space);

  uint32_t page_tokens_;
  std::vector<TreeGroup> groups_;
  KeyMode key_mode_;
  EvictionPolicy& policy_;
  std::vector<WindowPages> windows_;  // [group]; unused in full groups
  std::unordered_map<std::string, std::unique_ptr<Space>> spaces_;
  std::unordered_map<ChildRef, Node*, ChildRefHash> children_;  // head of the chain of equal keys
  struct TenantNumber {
    uint32_t number = 0, spaces = 0;
  };
  std::unordered_map<std::string, TenantNumber> tenants_;  // that have a space
  std::vector<uint32_t> free_tenant_numbers_;
  uint64_t tick_ = 0;
  uint64_t version_ = 0;
  uint64_t node_count_ = 0;  // roots not counted
  uint64_t transient_count_ = 0;
  uint32_t session_leases_ = 0;
  uint64_t remapped_pages_ = 0;
  std::array<uint64_t, kGroupsMax> evicted_pages_{};
};

}  // namespace spillway::cache
