#include "cache/page_directory.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace spillway::cache {

PageDirectory::~PageDirectory() {
  for (const auto& [uid, node] : nodes_) CHECK(node->transfers == 0);
}

DirectoryNode& PageDirectory::root(const Namespace& name) {
  std::unique_ptr<DirectorySpace>& space = spaces_[name.identity];
  if (space == nullptr) {
    space = std::make_unique<DirectorySpace>();
    space->identity = name.identity;
    space->tenant = name.tenant;
    space->root.space = space.get();
    const auto [tenant, is_new] = tenants_.try_emplace(name.tenant);
    if (is_new && !free_tenant_numbers_.empty()) {
      tenant->second.number = free_tenant_numbers_.back();
      free_tenant_numbers_.pop_back();
    } else if (is_new) {
      tenant->second.number = static_cast<uint32_t>(tenants_.size() - 1);
    }
    ++tenant->second.spaces;
    space->tenant_number = tenant->second.number;
  }
  return space->root;
}

DirectoryNode* PageDirectory::find(const DirectoryNode& parent, const PageKey& key,
                                   std::span<const TokenId> tokens) const {
  const auto found = children_.find({&parent, key});
  if (found == children_.end()) return nullptr;
  DirectoryNode* node = found->second;
  while (node != nullptr && !std::equal(tokens.begin(), tokens.end(), node->tokens.begin())) {
    node = node->next_same_key;
  }
  return node;
}

DirectoryNode* PageDirectory::add(DirectoryNode& parent, const PageKey& key,
                                  std::span<const TokenId> tokens, uint64_t uid) {
  CHECK(tokens.size() == page_tokens_);
  if (DirectoryNode* known = find(parent, key, tokens)) return known;
  DirectoryNode*& head = children_[{&parent, key}];
  uint32_t chain = 0;
  for (const DirectoryNode* other = head; other != nullptr; other = other->next_same_key) ++chain;
  if (chain >= kChainMax) return nullptr;
  if (uid == 0) uid = ++last_uid_;
  auto made = std::make_unique<DirectoryNode>();
  DirectoryNode* node = made.get();
  node->uid = uid;
  node->space = parent.space;
  node->parent = &parent;
  node->key = key;
  node->position = parent.uid == 0 ? 0 : parent.position + 1;
  node->tokens.assign(tokens.begin(), tokens.end());
  node->next_same_key = head;
  for (uint32_t g = 0; g < kGroupsMax; ++g) {
    for (TierEntry* entry : {&node->pages[g].host, &node->pages[g].nvme}) {
      entry->node = node;
      entry->group = g;
      entry->key = key.low;
      entry->tenant = parent.space->tenant_number;
    }
  }
  head = node;
  ++parent.children;
  const bool is_new = nodes_.emplace(uid, std::move(made)).second;
  CHECK(is_new);
  return node;
}

std::vector<DirectoryNode*> PageDirectory::walk(const PromptKeys& keys,
                                                std::span<const TokenId> tokens,
                                                uint32_t pages_max) const {
  std::vector<DirectoryNode*> path;
  const auto space = spaces_.find(keys.space.identity);
  if (space == spaces_.end()) return path;
  const DirectoryNode* at = &space->second->root;
  const uint32_t most = std::min(pages_max, static_cast<uint32_t>(keys.pages.size()));
  for (uint32_t i = 0; i < most; ++i) {
    DirectoryNode* next =
        find(*at, keys.pages[i], tokens.subspan(size_t{i} * page_tokens_, page_tokens_));
    if (next == nullptr) break;
    path.push_back(next);
    at = next;
  }
  return path;
}

void PageDirectory::settle(DirectoryNode* node) {
  while (node->uid != 0) {
    const bool bare = std::all_of(node->pages.begin(), node->pages.end(),
                                  [](const LowerPage& page) { return page.residency.nowhere(); });
    if (!bare || node->children > 0 || node->transfers > 0) return;
    DirectoryNode* parent = node->parent;
    const auto found = children_.find({parent, node->key});
    CHECK(found != children_.end());
    DirectoryNode** link = &found->second;
    while (*link != node) link = &(*link)->next_same_key;
    *link = node->next_same_key;
    if (found->second == nullptr) children_.erase(found);
    CHECK(parent->children > 0);
    --parent->children;
    nodes_.erase(node->uid);
    node = parent;
  }
  if (node->children == 0) {
    const auto tenant = tenants_.find(node->space->tenant);
    CHECK(tenant != tenants_.end());
    if (--tenant->second.spaces == 0) {
      free_tenant_numbers_.push_back(tenant->second.number);
      tenants_.erase(tenant);
    }
    const std::string identity = node->space->identity;  // the map's own key dies with the entry
    spaces_.erase(identity);
  }
}

DirectoryNode* PageDirectory::with_uid(uint64_t uid) const {
  const auto found = nodes_.find(uid);
  return found == nodes_.end() ? nullptr : found->second.get();
}

void PageDirectory::for_each(const std::function<void(const DirectoryNode&)>& visit) const {
  for (const auto& [uid, node] : nodes_) visit(*node);
}

std::string PageDirectory::check_integrity() const {
  for (const auto& [ref, first] : children_) {
    uint32_t chain = 0;
    for (const DirectoryNode* node = first; node != nullptr; node = node->next_same_key) ++chain;
    if (chain > kChainMax) return "a chain of equal keys in the directory is too long";
  }
  std::unordered_map<const DirectoryNode*, uint32_t> children;
  for (const auto& [uid, node] : nodes_) {
    if (node->uid != uid || uid > last_uid_) return "a directory node has a wrong uid";
    if (node->tokens.size() != page_tokens_) return "a directory node has no page of tokens";
    if (find(*node->parent, node->key, node->tokens) != node.get()) {
      return "a directory node is not found where it belongs";
    }
    if (node->parent->uid != 0) {
      const auto parent = nodes_.find(node->parent->uid);
      if (parent == nodes_.end() || parent->second.get() != node->parent) {
        return "a directory node's parent is gone";
      }
      if (node->position != node->parent->position + 1) return "a directory node is misplaced";
    } else if (node->position != 0) {
      return "a directory node under a root is misplaced";
    }
    ++children[node->parent];
    const bool bare = std::all_of(node->pages.begin(), node->pages.end(),
                                  [](const LowerPage& page) { return page.residency.nowhere(); });
    if (bare && node->children == 0 && node->transfers == 0) return "a directory node is of no use";
  }
  for (const auto& [uid, node] : nodes_) {
    const auto found = children.find(node.get());
    if (node->children != (found == children.end() ? 0 : found->second)) {
      return "a directory node counts its children wrong";
    }
  }
  for (const auto& [identity, space] : spaces_) {
    const auto found = children.find(&space->root);
    if (found == children.end() || found->second != space->root.children) {
      return "a directory root counts its children wrong, or has none";
    }
  }
  return {};
}

}  // namespace spillway::cache
