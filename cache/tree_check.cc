// Walks the whole prefix tree and compares it with what its counters, lists and pools say. Nothing
// is believed: keys are made again from tokens, pins are counted again from leases.
#include <algorithm>
#include <map>
#include <set>

#include "cache/prefix_tree.h"

namespace spillway::cache {

class TreeCheck {
 public:
  explicit TreeCheck(const PrefixTree& tree) : tree_(tree) {
    for (const TreeGroup& group : tree.groups_) {
      seen_.emplace_back(group.pool->capacity());
      pins_.emplace_back(group.pool->capacity());
    }
  }

  std::string run() {
    for (const auto& [identity, space] : tree_.spaces_) {
      if (space->name.identity != identity) fail("a namespace is filed under another's name");
      if (space->root.parent != nullptr) fail("a root has a parent");
      if (!space->root.entries.empty()) fail("a root has tokens");
      if (space->root.first_child == nullptr && space->root.leases == nullptr) {
        fail("an idle namespace was not dropped");
      }
      visit_subtree(*space);
    }
    if (nodes_ != tree_.node_count_) fail("the count of nodes is not what a recount gives");
    if (child_nodes_in_map() != nodes_) fail("the map of children misses or repeats a node");
    if (session_leases_ != tree_.session_leases_) {
      fail("the count of sessions' leases is not a recount's");
    }
    if (candidates_ != tree_.policy_.size()) fail("the policy knows other leaves than may go");
    for (uint32_t g = 0; g < tree_.groups_.size(); ++g) check_group(g);
    return problem_;
  }

 private:
  void fail(const char* what) {
    if (problem_.empty()) problem_ = what;
  }

  void visit_subtree(const Space& space) {
    std::vector<const Node*> pending = {&space.root};
    while (!pending.empty()) {
      const Node* node = pending.back();
      pending.pop_back();
      if (node->space != &space) fail("a node belongs to another namespace");
      if (node->parent != nullptr) visit_node(*node);
      visit_leases(*node);
      std::set<std::vector<TokenId>> first_pages;
      for (const Node* child = node->first_child; child != nullptr; child = child->next_sibling) {
        if (child->parent != node) fail("a child has another parent");
        if (child->start != node->end()) fail("a child does not start where its parent ends");
        if (child->entries.empty()) {
          fail("a node is empty");
          continue;
        }
        if (child->tokens.size() < tree_.page_tokens_) continue;  // reported with the node
        const auto page_end = child->tokens.begin() + tree_.page_tokens_;
        if (!first_pages.insert({child->tokens.begin(), page_end}).second) {
          fail("two children begin with the same page");
        }
        pending.push_back(child);
      }
    }
  }

  void visit_node(const Node& node) {
    ++nodes_;
    if (node.tokens.size() != node.entries.size() * tree_.page_tokens_) {
      return fail("an edge does not end at a page boundary");
    }
    const Node* child =
        tree_.find_child(*node.parent, node.entries.front().key, node.tokens.data());
    if (child != &node) fail("a node cannot be found from its parent");
    if (tree_.chain_length(*node.parent, node.entries.front().key) > PrefixTree::kChainMax) {
      fail("a chain of equal keys is too long");
    }
    PageKey parent_key =
        node.parent->parent == nullptr ? PageKey{} : node.parent->entries.back().key;
    for (uint32_t position = node.start; position < node.end(); ++position) {
      visit_entry(node, position, parent_key);
      parent_key = node.at(position).key;
    }
    visit_leaf_state(node);
  }

  void visit_entry(const Node& node, uint32_t position, const PageKey& parent_key) {
    const Entry& entry = node.at(position);
    const std::span<const TokenId> tokens(
        node.tokens.data() + size_t{position - node.start} * tree_.page_tokens_,
        tree_.page_tokens_);
    if (entry.key != page_key(tree_.key_mode_, node.space->name, parent_key, tokens)) {
      fail("a page's key is not that of its tokens");
    }
    for (uint32_t g = 0; g < kGroupsMax; ++g) {
      const PageId page = entry.pages[g];
      if (page == kNoPage) {
        if (g < tree_.groups_.size() && tree_.groups_[g].window == 0) {
          fail("a page of a full group is absent");
        }
        if (entry.keep[g]) fail("a page is to be kept that is not there");
        continue;
      }
      if (g >= tree_.groups_.size() || index_of(page) >= seen_[g].size()) {
        return fail("an entry has a page that is in no pool");
      }
      if (seen_[g][index_of(page)]) fail("a page is in the tree twice");
      seen_[g][index_of(page)] = true;
      if (tree_.groups_[g].pool->state(page) != PageState::kSealed) {
        fail("a page in the tree is not sealed");
      }
      if (tree_.groups_[g].window > 0) visit_window_page(node, position, g);
    }
  }

  void visit_window_page(const Node& node, uint32_t position, uint32_t group) {
    const Entry& entry = node.at(position);
    const PageId page = entry.pages[group];
    const WindowPages& window = tree_.windows_[group];
    const bool unpinned = tree_.groups_[group].pool->pins(page) == 0;
    const WindowPages::Place place = window.place(page);
    if (place.node != &node || place.position != position) fail("a window page's place is wrong");
    if (window.listed(page) != unpinned) fail("a window page is listed though pinned, or is not");
    if (!unpinned) return;
    ++listed_[group];
    if (!entry.keep[group] && entry.soft_windows[group] == 0) {
      fail("a window page stays for no reason");
    }
    if (window.listed_as_session(page) != (entry.soft_windows[group] > 0)) {
      fail("a window page is in the wrong list");
    }
  }

  void visit_leaf_state(const Node& node) {
    const bool may_go =
        node.first_child == nullptr && node.entries.back().count(LeaseKind::kPin) == 0;
    if (node.candidate != may_go) fail("the policy knows of a leaf that may not go, or not of one");
    if (node.candidate) ++candidates_;
    if (may_go && node.space->transient) fail("a transient path outlives its lease");
    if (may_go && tree_.is_bare(node.entries.back())) fail("a leaf without pages was not dropped");
    if (may_go) check_description(node);
  }

  void check_description(const Node& leaf) {
    const Entry& last = leaf.entries.back();
    const bool held = last.has_soft_lease(), kept = last.count(LeaseKind::kKeep) > 0;
    if ((leaf.hold != Hold::kNone) != held) fail("a leaf is wrongly marked as a session's");
    if ((leaf.hold == Hold::kPinned) != kept) fail("a leaf is wrongly marked as kept");
    const bool same = leaf.key == last.key.low && leaf.uses == last.uses &&
                      leaf.last_use == last.last_use && leaf.depth_pages == leaf.end() &&
                      leaf.tenant == leaf.space->tenant;
    if (!same) fail("the policy was told something else of a leaf");
    if (last.uses == 0) fail("a page was never used");
  }

  // Counts again what the leases that end in `node` pin, and how many end at each entry.
  void visit_leases(const Node& node) {
    std::map<uint32_t, std::array<uint32_t, kLeaseKinds>> ends;  // position -> [kind]
    for (const Lease* lease = node.leases; lease != nullptr; lease = lease->next_) {
      if (lease->node_ != &node) fail("a lease is in another node's list");
      const bool at_root = node.parent == nullptr && lease->end_ == 0;
      if (!at_root && (lease->end_ <= node.start || lease->end_ > node.end())) {
        fail("a lease ends outside its node");
        continue;
      }
      if (lease->kind_ == LeaseKind::kSession) ++session_leases_;
      if (!at_root) ++ends[lease->end_ - 1][static_cast<size_t>(lease->kind_)];
      for (uint32_t g = 0; g < tree_.groups_.size(); ++g) count_lease(*lease, g);
    }
    for (uint32_t position = node.start; position < node.end(); ++position) {
      if (node.at(position).leases != ends[position]) fail("leases at an entry: wrong count");
    }
  }

  void count_lease(const Lease& lease, uint32_t group) {
    const bool pins = lease.kind_ == LeaseKind::kPin;
    if (!pins && tree_.groups_[group].window == 0) return;
    tree_.visit_path(lease.node_, lease.end_, lease.first_[group], [&](const Entry& entry) {
      const PageId page = entry.pages[group];
      if (!pins) {
        ++soft_windows_[{&entry, group}];
      } else if (page == kNoPage || index_of(page) >= pins_[group].size()) {
        fail("a leased page is absent");
      } else {
        ++pins_[group][index_of(page)];
      }
    });
  }

  size_t child_nodes_in_map() const {
    size_t nodes = 0;
    for (const auto& [ref, head] : tree_.children_) {
      for (const Node* node = head; node != nullptr; node = node->next_same_key) ++nodes;
    }
    return nodes;
  }

  void check_group(uint32_t group) {
    const PagePool& pool = *tree_.groups_[group].pool;
    for (uint32_t i = 0; i < pool.capacity(); ++i) {
      const PageId page{i};
      if (pool.pins(page) != pins_[group][i]) fail("a page's pins are not those of its leases");
      if ((pool.state(page) == PageState::kSealed) != seen_[group][i]) {
        fail("a sealed page is not in the tree");
      }
    }
    if (tree_.groups_[group].window == 0) return;
    if (listed_[group] != tree_.windows_[group].listed_count()) {
      fail("a page is listed as evictable that is not in the tree");
    }
    const uint64_t here =
        static_cast<uint64_t>(std::count(seen_[group].begin(), seen_[group].end(), true));
    if (tree_.windows_[group].shares().pages() != here) {
      fail("tenants are charged for another number of window pages");
    }
    for (const auto& [identity, space] : tree_.spaces_) check_soft_windows(space->root, group);
  }

  void check_soft_windows(const Node& root, uint32_t group) {
    std::vector<const Node*> pending = {&root};
    while (!pending.empty()) {
      const Node* node = pending.back();
      pending.pop_back();
      for (const Entry& entry : node->entries) {
        const auto found = soft_windows_.find({&entry, group});
        const uint32_t expected = found == soft_windows_.end() ? 0 : found->second;
        if (entry.soft_windows[group] != expected) fail("soft leases of a window: wrong count");
      }
      for (const Node* child = node->first_child; child != nullptr; child = child->next_sibling) {
        pending.push_back(child);
      }
    }
  }

  const PrefixTree& tree_;
  std::string problem_;
  uint64_t nodes_ = 0;
  uint32_t candidates_ = 0, session_leases_ = 0;
  std::array<uint32_t, kGroupsMax> listed_{};
  std::vector<std::vector<bool>> seen_;      // [group][page]: in the tree
  std::vector<std::vector<uint32_t>> pins_;  // [group][page]: recounted
  std::map<std::pair<const Entry*, uint32_t>, uint32_t> soft_windows_;
};

std::string PrefixTree::check_integrity() const { return TreeCheck(*this).run(); }

}  // namespace spillway::cache
