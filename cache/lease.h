// A hold on a path of the prefix tree, from the root to the end of one of its pages.
//
// A pinning lease keeps every page it covers where it is: in full groups the whole path, in window
// groups the pages from first(group) on. A soft lease (a session's, a prompt's static part's, or a
// prefix's that is to be kept) pins nothing: its pages are evicted after others, and it grows
// shorter with them until it is empty.
//
// Made, advanced and ended by the tree; a lease that dies ends itself. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/page_counts.h"

namespace spillway::cache {

class PrefixTree;
struct Node;

enum class LeaseKind : uint8_t { kPin, kSession, kKeep, kStatic };
inline constexpr size_t kLeaseKinds = 4;
constexpr bool is_soft(LeaseKind kind) { return kind != LeaseKind::kPin; }

class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { reset(); }

  bool empty() const { return node_ == nullptr; }
  LeaseKind kind() const { return kind_; }
  uint32_t end() const { return end_; }  // pages of the path
  uint32_t first(uint32_t group) const { return first_[group]; }
  void reset();  // gives the path back

 private:
  friend class PrefixTree;
  friend class TreeCheck;
  void take_place_of(Lease& other);

  PrefixTree* tree_ = nullptr;
  Node* node_ = nullptr;       // that holds page end_ - 1, or a root with end_ 0; null: empty
  Lease* previous_ = nullptr;  // the leases that end in node_
  Lease* next_ = nullptr;
  uint32_t end_ = 0;
  PageCounts first_{};
  LeaseKind kind_ = LeaseKind::kPin;
  bool is_use_ = true;  // false: a copy's, which tells nothing of what is wanted
};

}  // namespace spillway::cache
