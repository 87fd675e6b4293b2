#include "runtime/indexed_heap.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

namespace spillway {
namespace {

struct Item {
  int rank = 0;
  uint32_t at = 0;
};

struct ByRank {
  static bool before(const Item& a, const Item& b) { return a.rank < b.rank; }
  static uint32_t& index(Item& item) { return item.at; }
};

using Heap = IndexedHeap<Item, ByRank>;

// Against a set of what is in it. Few ranks, so that many are equal.
RC_GTEST_PROP(indexed_heap, the_front_is_never_behind_another, ()) {
  Heap heap;
  std::deque<Item> items;
  std::set<Item*> in;
  const auto rank = [] { return *rc::gen::inRange(0, 12); };
  const auto any = [&]() -> Item& {
    return **std::next(in.begin(), *rc::gen::inRange<ptrdiff_t>(0, std::ssize(in)));
  };
  const int steps = *rc::gen::inRange(0, 200);
  for (int i = 0; i < steps; ++i) {
    const int what = in.empty() ? 0 : *rc::gen::inRange(0, 8);
    if (what < 4) {
      in.insert(&items.emplace_back(Item{rank()}));
      heap.add(items.back());
    } else if (what == 4) {
      Item& moved = any();
      moved.rank = rank();
      heap.update(moved);
    } else if (what < 7) {
      Item& gone = what == 5 ? any() : *heap.front();
      heap.remove(gone);
      in.erase(&gone);
    } else {
      const int turn = rank();
      heap.reorder([&](Item& item) { item.rank = (item.rank * 7 + turn) % 12; });
    }
    heap.check_integrity();
    RC_ASSERT(heap.size() == in.size());
    RC_ASSERT((heap.front() == nullptr) == in.empty());
    for (const Item* item : in) RC_ASSERT(!ByRank::before(*item, *heap.front()));
  }
}

TEST(indexed_heap, what_is_not_in_it_is_a_bug) {
  Heap heap, other;
  Item a{1}, b{2};
  heap.add(a);
  other.add(b);
  EXPECT_DEATH(heap.remove(b), "CHECK");
  EXPECT_DEATH(heap.update(b), "CHECK");
  heap.remove(a);
  EXPECT_DEATH(heap.remove(a), "CHECK");
}

}  // namespace
}  // namespace spillway
