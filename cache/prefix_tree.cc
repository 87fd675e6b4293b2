#include "cache/prefix_tree.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"

namespace spillway::cache {

PrefixTree::PrefixTree(uint32_t page_tokens, std::vector<TreeGroup> groups, KeyMode key_mode,
                       EvictionPolicy& policy)
    : page_tokens_(page_tokens), groups_(std::move(groups)), key_mode_(key_mode), policy_(policy) {
  CHECK(page_tokens_ >= 1);
  CHECK(page_tokens_ <= kPageTokensMax);
  CHECK(!groups_.empty());
  CHECK(groups_.size() <= kGroupsMax);
  for (const TreeGroup& group : groups_) {
    CHECK(group.pool != nullptr);
    windows_.emplace_back(group.window > 0 ? group.pool->capacity() : 0);
  }
}

PrefixTree::~PrefixTree() {
  clear();
  CHECK(spaces_.empty());
  CHECK(node_count_ == 0);
}

bool PrefixTree::same_tokens(const TokenId* a, const TokenId* b, uint32_t pages) const {
  return std::memcmp(a, b, sizeof(TokenId) * page_tokens_ * pages) == 0;
}

// Pages at the front of a and b that are equal, of `pages`. Bisects: a mismatch is found in at most
// twice the bytes before it, and all equal costs one pass.
uint32_t PrefixTree::common_pages(const TokenId* a, const TokenId* b, uint32_t pages) const {
  if (same_tokens(a, b, pages)) return pages;
  uint32_t equal = 0, unequal = pages;  // [0, equal) is the same, [0, unequal) is not
  while (unequal - equal > 1) {
    const uint32_t middle = equal + (unequal - equal) / 2;
    const size_t offset = size_t{equal} * page_tokens_;
    (same_tokens(a + offset, b + offset, middle - equal) ? equal : unequal) = middle;
  }
  return equal;
}

Node* PrefixTree::find_child(const Node& parent, const PageKey& key, const TokenId* page) const {
  const auto found = children_.find({&parent, key});
  if (found == children_.end()) return nullptr;
  for (Node* child = found->second; child != nullptr; child = child->next_same_key) {
    if (same_tokens(child->tokens.data(), page, 1)) return child;
  }
  return nullptr;
}

PrefixTree::Match PrefixTree::match(const PromptKeys& keys, std::span<const TokenId> tokens,
                                    uint32_t pages_max) const {
  CHECK(keys.pages.size() >= pages_max);
  CHECK(tokens.size() >= size_t{pages_max} * page_tokens_);
  const auto space = spaces_.find(keys.space.identity);
  if (space == spaces_.end()) return {};
  Node* node = &space->second->root;
  uint32_t end = 0;
  while (end < pages_max) {
    const TokenId* rest = tokens.data() + size_t{end} * page_tokens_;
    Node* child = find_child(*node, keys.pages[end], rest);
    if (child == nullptr) break;
    const uint32_t length = static_cast<uint32_t>(child->entries.size());
    const uint32_t same =
        common_pages(child->tokens.data(), rest, std::min(length, pages_max - end));
    node = child;
    end += same;
    if (same < length) break;
  }
  return {usable_before(node, end), {node, end}, end};
}

std::optional<uint32_t> PrefixTree::divergence(const Match& match, const Namespace& space,
                                               std::span<const TokenId> tokens) const {
  const Node* node = match.path.node;
  if (node == nullptr) {
    const auto found = spaces_.find(space.identity);
    if (found == spaces_.end()) return std::nullopt;
    node = &found->second->root;
  }
  const size_t from = size_t{match.path.end} * page_tokens_;
  const auto rest = tokens.subspan(from, std::min<size_t>(page_tokens_, tokens.size() - from));
  const auto agrees = [&](const TokenId* page) {
    return static_cast<uint32_t>(std::mismatch(rest.begin(), rest.end(), page).first -
                                 rest.begin());
  };
  std::optional<uint32_t> most;
  if (match.path.end < node->end()) {
    most = agrees(node->tokens.data() + size_t{match.path.end - node->start} * page_tokens_);
  } else {
    uint32_t looks = 0;
    for (const Node* child = node->first_child; child != nullptr && looks < kSiblingsMax;
         child = child->next_sibling, ++looks) {
      most = std::max(most.value_or(0), agrees(child->tokens.data()));
    }
  }
  if (!most || *most == rest.size()) return std::nullopt;  // none, or the prompt just ends there
  return static_cast<uint32_t>(from) + *most;
}

uint32_t PrefixTree::first_visible(uint32_t group, uint32_t boundary) const {
  const uint64_t window = groups_[group].window;
  const uint64_t next_query = uint64_t{boundary} * page_tokens_;
  if (window == 0 || next_query + 1 <= window) return 0;
  return static_cast<uint32_t>((next_query + 1 - window) / page_tokens_);
}

// The deepest boundary on the path up to `end` before which every window group has its window. Goes
// back page by page; each group's pages are looked at once.
PrefixTree::Point PrefixTree::usable_before(Node* node, uint32_t end) const {
  uint32_t boundary = end;
  std::array<uint32_t, kGroupsMax> present_from;  // [present_from, boundary) is there
  std::array<const Node*, kGroupsMax> cursor;
  present_from.fill(end);
  cursor.fill(node);
  for (bool again = true; again;) {
    again = false;
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].window == 0) continue;
      present_from[g] = std::min(present_from[g], boundary);
      while (present_from[g] > first_visible(g, boundary)) {
        const uint32_t position = present_from[g] - 1;
        while (position < cursor[g]->start) cursor[g] = cursor[g]->parent;
        if (cursor[g]->at(position).pages[g] == kNoPage) {
          boundary = position;
          again = true;
        }
        present_from[g] = position;
      }
    }
  }
  while (node->parent != nullptr && node->start >= boundary) node = node->parent;
  return {node, boundary};
}

Space& PrefixTree::space_of(const Namespace& name) {
  std::unique_ptr<Space>& space = spaces_[name.identity];
  if (space == nullptr) {
    space = std::make_unique<Space>();
    space->name = name;
    space->tenant = number_tenant(name.tenant);
    space->root.space = space.get();
  }
  return *space;
}

// Numbers are small and used again, so that policies can keep what they know in vectors.
uint32_t PrefixTree::number_tenant(const std::string& name) {
  const auto [at, is_new] = tenants_.try_emplace(name);
  TenantNumber& tenant = at->second;
  if (is_new && free_tenant_numbers_.empty()) {
    tenant.number = static_cast<uint32_t>(tenants_.size() - 1);
  } else if (is_new) {
    tenant.number = free_tenant_numbers_.back();
    free_tenant_numbers_.pop_back();
  }
  ++tenant.spaces;
  return tenant.number;
}

void PrefixTree::forget_tenant(const std::string& name) {
  const auto at = tenants_.find(name);
  CHECK(at != tenants_.end());
  if (--at->second.spaces > 0) return;
  free_tenant_numbers_.push_back(at->second.number);
  tenants_.erase(at);
}

uint32_t PrefixTree::chain_length(const Node& parent, const PageKey& key) const {
  const auto found = children_.find({&parent, key});
  uint32_t length = 0;
  if (found == children_.end()) return 0;
  for (const Node* child = found->second; child != nullptr; child = child->next_same_key) ++length;
  return length;
}

void PrefixTree::attach_child(Node& parent, Node& child) {
  child.parent = &parent;
  child.previous_sibling = nullptr;
  child.next_sibling = parent.first_child;
  if (child.next_sibling != nullptr) child.next_sibling->previous_sibling = &child;
  parent.first_child = &child;
  Node*& head = children_[{&parent, child.entries.front().key}];
  child.next_same_key = head;
  head = &child;
}

void PrefixTree::detach_child(Node& child) {
  Node& parent = *child.parent;
  (child.previous_sibling == nullptr ? parent.first_child : child.previous_sibling->next_sibling) =
      child.next_sibling;
  if (child.next_sibling != nullptr) child.next_sibling->previous_sibling = child.previous_sibling;
  const auto found = children_.find({&parent, child.entries.front().key});
  CHECK(found != children_.end());
  Node** link = &found->second;
  while (*link != &child) link = &(*link)->next_same_key;
  *link = child.next_same_key;
  if (found->second == nullptr) children_.erase(found);
}

// Cuts the edge before position `at`. The part after it stays `node`, with its children and its
// place in the policy; a new node above gets the rest, and the leases that end there. Pins belong
// to pages and entries, so both halves keep them (case K7).
void PrefixTree::split(Node& node, uint32_t at) {
  CHECK(at > node.start);
  CHECK(at < node.end());
  Node& parent = *node.parent;
  detach_child(node);
  Node& upper = *new Node;
  const uint32_t pages = at - node.start;
  const size_t cut_tokens = size_t{pages} * page_tokens_;
  upper.space = node.space;
  upper.start = node.start;
  upper.tokens.assign(node.tokens.begin(), node.tokens.begin() + cut_tokens);
  upper.entries.assign(node.entries.begin(), node.entries.begin() + pages);
  node.tokens.erase(node.tokens.begin(), node.tokens.begin() + cut_tokens);
  node.entries.erase(node.entries.begin(), node.entries.begin() + pages);
  node.start = at;
  attach_child(parent, upper);
  attach_child(upper, node);
  ++node_count_;
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].window == 0) continue;
    for (uint32_t position = upper.start; position < at; ++position) {
      const PageId page = upper.at(position).pages[g];
      if (page != kNoPage) windows_[g].set_place(page, {&upper, position});
    }
  }
  for (Lease* lease = node.leases; lease != nullptr;) {
    Lease* next = lease->next_;
    if (lease->end_ <= at) {
      remove_from_list(*lease);
      add_to_list(*lease, upper);
    }
    lease = next;
  }
}

// Finds or makes the entry that follows the lease's end and has `tokens`; returns its node.
Node* PrefixTree::next_entry(Lease& lease, std::span<const TokenId> tokens, const PageKey& key) {
  const uint32_t position = lease.end_;
  Node& node = *lease.node_;
  if (position < node.end()) {
    const size_t offset = size_t{position - node.start} * page_tokens_;
    if (same_tokens(node.tokens.data() + offset, tokens.data(), 1)) {
      ++node.at(position).uses;
      return &node;
    }
    split(node, position);  // the lease now ends in the upper half
  } else if (Node* child = find_child(node, key, tokens.data()); child != nullptr) {
    ++child->entries.front().uses;
    return child;
  }
  Node& parent = *lease.node_;
  Node* grows = &parent;
  Entry entry;
  entry.key = key;
  const bool is_open_leaf = parent.parent != nullptr && parent.first_child == nullptr;
  if (!is_open_leaf) {
    if (chain_length(parent, key) >= kChainMax) return nullptr;
    grows = new Node;
    grows->space = parent.space;
    grows->start = position;
    ++node_count_;
  }
  if (!parent.space->transient) {
    const PageMemory known = policy_.admit(key.low, parent.space->tenant, tick_);
    entry.last_use = known.last_use;
    entry.uses = known.uses;
  }
  ++entry.uses;
  grows->tokens.insert(grows->tokens.end(), tokens.begin(), tokens.end());
  grows->entries.push_back(entry);
  if (!is_open_leaf) attach_child(parent, *grows);
  return grows;
}

bool PrefixTree::append(Lease& lease, std::span<const TokenId> tokens, PageSet& pages) {
  CHECK(lease.tree_ == this);
  CHECK(lease.kind_ == LeaseKind::kPin);
  CHECK(tokens.size() == page_tokens_);
  const uint32_t position = lease.end_;
  const PageKey parent_key = position == 0 ? PageKey{} : lease.node_->at(position - 1).key;
  const PageKey key = page_key(key_mode_, lease.node_->space->name, parent_key, tokens);
  Node* next = next_entry(lease, tokens, key);
  if (next == nullptr) return false;
  unlink(lease);
  link(lease, *next, position + 1);
  Entry& entry = next->at(position);
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (position < lease.first_[g]) {
      CHECK(pages[g] == kNoPage);
      continue;
    }
    adopt_page(entry, g, {next, position}, pages[g]);
  }
  settle(next);
  return true;
}

// Ours is sealed and becomes the tree's; or it is released and the tree's takes its place (K9).
void PrefixTree::adopt_page(Entry& entry, uint32_t group, WindowPages::Place place, PageId& ours) {
  PagePool& pool = *groups_[group].pool;
  const bool is_window = groups_[group].window > 0;
  if (entry.pages[group] == kNoPage) {
    pool.move(ours, PageState::kSealed);
    entry.pages[group] = ours;
    if (is_window) {
      windows_[group].store(ours, place.node->space->tenant);
      windows_[group].set_place(ours, place);
    }
  } else {
    pool.release(ours);
    ours = entry.pages[group];
    if (is_window && windows_[group].listed(ours)) windows_[group].unlist(ours);
    ++remapped_pages_;
  }
  pool.pin(ours);
  ++version_;
}

}  // namespace spillway::cache
