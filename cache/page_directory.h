// Which prefixes' pages live below the device: a trie of pages, one node per page of a path, beside
// the prefix tree of the device.
//
// A node is found by its parent and its page's key, and its tokens are always compared; since the
// parent is a node and not a hash, a hit means that the whole prefix is equal even if every hash
// were the same (case K17). Each node has a uid that names it in the store's index, so that the
// trie can be built again after a restart. A node lasts while a lower tier holds a page of it, a
// transfer names it, or it has children.
//
// Owner and thread: Tiers, on the engine's thread. Memory: about 700 bytes a node.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/eviction_policy.h"
#include "cache/host_pool.h"
#include "cache/namespace_key.h"
#include "cache/page_counts.h"
#include "cache/page_pool.h"
#include "cache/residency.h"
#include "io/block_store.h"
#include "kernels/page_codec.h"

namespace spillway::cache {

struct DirectoryNode;

// A page of one layer group, as one lower tier's eviction policy sees it.
struct TierEntry : EvictionCandidate {
  DirectoryNode* node = nullptr;
  uint32_t group = 0;
  bool held = false;    // the tier holds the page: the policy was told of its coming
  bool listed = false;  // it is a candidate
};

struct LowerPage {
  Residency residency;
  HostUnits host_units;  // none: it has no place in host memory
  // How it lies there.
  kernels::PageCodec host_codec = kernels::PageCodec::kIdentity;
  uint32_t host_bytes = 0;
  uint64_t host_checksum = 0;  // of these; without a codec where every crossing is checked
  // A reset came while it was read there: it goes when nobody reads it any more.
  bool host_cleared = false, nvme_cleared = false;
  io::SlotId slot{};
  uint64_t generation = 0;
  uint32_t codec = 0;
  uint32_t encoded_bytes = 0, stored_bytes = 0;
  uint32_t bands = 1;  // in the store: io/page_bands.h
  TierEntry host, nvme;
};

struct DirectorySpace;

struct DirectoryNode {
  uint64_t uid = 0;  // 0: a root
  DirectorySpace* space = nullptr;
  DirectoryNode* parent = nullptr;
  PageKey key;
  uint32_t position = 0;  // pages before it
  uint32_t children = 0;
  uint32_t stored_children = 0;  // whose page of the chain (tiers.h) is on NVMe
  uint32_t transfers = 0;        // that name it
  uint64_t whole_since = 0;      // losses (Tiers) at which its chain was whole; 0: not known
  bool on_written_path = false;  // the writer goes through it: its pages on NVMe stay
  uint32_t uses = 0;             // times a request's path went through it
  uint64_t last_use = 0;
  DirectoryNode* next_same_key = nullptr;
  std::vector<TokenId> tokens;
  std::array<LowerPage, kGroupsMax> pages;  // [group]
};

struct DirectorySpace {
  std::string identity;
  std::string tenant;
  uint32_t tenant_number = 0;  // for the eviction policies
  DirectoryNode root;
};

class PageDirectory {
 public:
  static constexpr uint32_t kChainMax = 8;  // nodes of one parent and key

  explicit PageDirectory(uint32_t page_tokens) : page_tokens_(page_tokens) {}
  ~PageDirectory();
  PageDirectory(const PageDirectory&) = delete;
  PageDirectory& operator=(const PageDirectory&) = delete;

  // The nodes of the longest known prefix of `tokens`, [position], at most `pages_max`.
  std::vector<DirectoryNode*> walk(const PromptKeys& keys, std::span<const TokenId> tokens,
                                   uint32_t pages_max) const;

  // The root of a namespace, made if need be.
  DirectoryNode& root(const Namespace& name);
  DirectoryNode* find(const DirectoryNode& parent, const PageKey& key,
                      std::span<const TokenId> tokens) const;
  // Finds or makes. Null: the chain of equal keys is full. `uid` 0: a new one.
  DirectoryNode* add(DirectoryNode& parent, const PageKey& key, std::span<const TokenId> tokens,
                     uint64_t uid = 0);
  // Removes the node and its ancestors as far as they are of no use any more.
  void settle(DirectoryNode* node);
  DirectoryNode* with_uid(uint64_t uid) const;  // null: there is none
  // Later uids are greater.
  void use_uid(uint64_t uid) { last_uid_ = std::max(last_uid_, uid); }

  uint64_t size() const { return nodes_.size(); }
  void for_each(const std::function<void(const DirectoryNode&)>& visit) const;
  std::string check_integrity() const;

 private:
  struct ChildRef {
    const DirectoryNode* parent;
    PageKey key;
    friend bool operator==(const ChildRef&, const ChildRef&) = default;
  };
  struct ChildRefHash {
    size_t operator()(const ChildRef& ref) const {
      return ref.key.low ^ (reinterpret_cast<uintptr_t>(ref.parent) * 0x9e3779b97f4a7c15u);
    }
  };

  struct Tenant {
    uint32_t number = 0;
    uint32_t spaces = 0;
  };

  const uint32_t page_tokens_;
  uint64_t last_uid_ = 0;
  std::unordered_map<std::string, Tenant> tenants_;  // that have a space
  std::vector<uint32_t> free_tenant_numbers_;
  std::unordered_map<std::string, std::unique_ptr<DirectorySpace>> spaces_;
  std::unordered_map<uint64_t, std::unique_ptr<DirectoryNode>> nodes_;   // by uid
  std::unordered_map<ChildRef, DirectoryNode*, ChildRefHash> children_;  // first of its chain
};

}  // namespace spillway::cache
