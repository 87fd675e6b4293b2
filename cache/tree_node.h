// What the prefix tree is made of. Only the tree and its parts include this.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/eviction_policy.h"
#include "cache/lease.h"
#include "cache/namespace_key.h"
#include "cache/page_counts.h"
#include "cache/page_pool.h"

namespace spillway::cache {

// One page's worth of tokens on an edge, and its page in each group.
struct Entry {
  PageKey key;
  uint64_t last_use =
      0;              // tick at which a lease on a path through here last ended, as far as known
  uint32_t uses = 0;  // requests whose path goes through here, as far as remembered
  std::array<uint32_t, kLeaseKinds> leases{};              // [kind] that end here
  std::array<PageId, kGroupsMax> pages{kNoPage, kNoPage};  // [group]; window pages may be absent
  // Of window groups: keep the page when nobody pins it (it lies before a breakpoint), and the
  // number of soft leases whose window it lies in.
  std::array<bool, kGroupsMax> keep{};
  std::array<uint32_t, kGroupsMax> soft_windows{};

  uint32_t count(LeaseKind kind) const { return leases[static_cast<size_t>(kind)]; }
  bool has_soft_lease() const {
    return count(LeaseKind::kSession) + count(LeaseKind::kKeep) + count(LeaseKind::kStatic) > 0;
  }
};

struct Space;

// An edge and the point it leads to. The base is what the eviction policy sees of its last page.
struct Node : EvictionCandidate {
  Space* space = nullptr;
  Node* parent = nullptr;  // null: a root, which has no entries
  Node* first_child = nullptr;
  Node* next_sibling = nullptr;
  Node* previous_sibling = nullptr;
  Node* next_same_key = nullptr;  // siblings whose first keys are equal
  Lease* leases = nullptr;        // that end in this node
  uint32_t start = 0;             // pages of the path before this edge
  bool candidate = false;         // the policy knows of it
  std::vector<TokenId> tokens;    // (entry, page_tokens)
  std::vector<Entry> entries;     // at least one, but for roots

  uint32_t end() const { return start + static_cast<uint32_t>(entries.size()); }
  Entry& at(uint32_t position) { return entries[position - start]; }
  const Entry& at(uint32_t position) const { return entries[position - start]; }
};

// The tree of one namespace.
struct Space {
  Namespace name;
  uint32_t tenant = 0;     // the policy's number for it
  bool transient = false;  // nothing stays without a lease (prefix caching is off)
  Node root;
};

}  // namespace spillway::cache
