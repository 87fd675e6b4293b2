// Units of host memory: what a page takes, and that there is room exactly when enough are free.
#include "cache/host_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>

namespace spillway::cache {
namespace {

constexpr size_t kSector = kernels::kPageAlignment;

using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;

Memory memory_of(size_t bytes) {
  return {static_cast<std::byte*>(std::aligned_alloc(kSector, bytes)), &std::free};
}

TEST(HostPool, a_unit_is_a_sector_or_a_128th_of_a_page) {
  EXPECT_EQ(small_unit_bytes(kSector), kSector);
  EXPECT_EQ(small_unit_bytes(360 << 10), kSector);
  EXPECT_EQ(small_unit_bytes(128 * kSector), kSector);
  EXPECT_EQ(small_unit_bytes(129 * kSector), 2 * kSector);
  EXPECT_EQ(small_unit_bytes(8 << 20), 64u << 10);
}

TEST(HostPool, a_page_takes_the_units_that_its_bytes_need_and_no_more) {
  const Memory memory = memory_of(12 * kSector);
  HostPool pool(memory.get(), 4 * kSector, 3, kSector);
  EXPECT_EQ(pool.capacity_bytes(), 12 * kSector);
  const HostUnits one = pool.acquire(1), three = pool.acquire(3 * kSector);
  const HostUnits four = pool.acquire(3 * kSector + 1);
  EXPECT_EQ(one.size(), 1u);
  EXPECT_EQ(three.size(), 3u);
  EXPECT_EQ(four.size(), 4u);
  EXPECT_EQ(pool.used_bytes(), 8 * kSector);
  pool.release(three);
  EXPECT_EQ(pool.used_bytes(), 5 * kSector);
}

TEST(HostPool, a_page_as_it_is_lies_in_one_piece) {
  const Memory memory = memory_of(6 * kSector);
  HostPool pool(memory.get(), 2 * kSector, 3, 2 * kSector);
  std::set<std::byte*> places;
  for (int i = 0; i < 3; ++i) places.insert(pool.page_data(pool.acquire(2 * kSector)));
  EXPECT_EQ(places, (std::set<std::byte*>{memory.get(), memory.get() + 2 * kSector,
                                          memory.get() + 4 * kSector}));
  EXPECT_TRUE(pool.acquire(1).empty());
}

struct Held {
  HostUnits units;
  std::vector<std::byte> bytes;
};

// Whatever was taken and given back before: nothing is lost between pages.
RC_GTEST_PROP(HostPool, there_is_room_exactly_when_enough_units_are_free, ()) {
  constexpr size_t kPage = 7 * kSector;
  const auto pages = *rc::gen::inRange<uint32_t>(1, 6);
  const size_t unit = *rc::gen::element(kSector, 2 * kSector, kPage);
  const Memory memory = memory_of(pages * kPage);
  HostPool pool(memory.get(), kPage, pages, unit);
  const size_t capacity = pages * kPage / unit;
  RC_ASSERT(pool.capacity_bytes() == capacity * unit);
  std::vector<Held> held;
  size_t used = 0;
  for (const uint32_t command :
       *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(0, 1u << 20))) {
    if (command % 3 == 0 && !held.empty()) {
      const auto which = held.begin() + static_cast<ptrdiff_t>(command % held.size());
      std::vector<std::byte> found(which->bytes.size());
      pool.read(which->units, found);
      RC_ASSERT(found == which->bytes);
      used -= which->units.size();
      pool.release(which->units);
      held.erase(which);
    } else {
      const size_t bytes = 1 + command % kPage, count = (bytes + unit - 1) / unit;
      Held made{pool.acquire(bytes), std::vector<std::byte>(bytes)};
      RC_ASSERT(made.units.size() == (used + count <= capacity ? count : 0));
      if (made.units.empty()) continue;
      used += count;
      for (size_t i = 0; i < bytes; ++i) made.bytes[i] = static_cast<std::byte>(command + i / 97);
      pool.fill(made.units, made.bytes);
      pool.seal(made.units);
      held.push_back(std::move(made));
    }
    RC_ASSERT(pool.used_units() == used);
    RC_ASSERT(pool.check_integrity() == "");
  }
}

}  // namespace
}  // namespace spillway::cache
