// What the pool counts, and what it refuses.
#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <set>

namespace spillway::cache {
namespace {

constexpr uint32_t kPages = 4;

class PagePoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<std::byte, decltype(&std::free)> memory_{
      static_cast<std::byte*>(std::aligned_alloc(4096, 4096 * kPages)), &std::free};
  PagePool pool_{memory_.get(), 4096, kPages};
};

TEST_F(PagePoolTest, gives_each_page_once) {
  std::set<PageId> pages;
  for (uint32_t i = 0; i < kPages; ++i) pages.insert(pool_.acquire());
  EXPECT_EQ(pages.size(), kPages);
  EXPECT_FALSE(pages.contains(kNoPage));
  EXPECT_EQ(pool_.acquire(), kNoPage);
  EXPECT_EQ(pool_.count(PageState::kWritable), kPages);
  EXPECT_EQ(pool_.check_integrity(), "");
}

TEST_F(PagePoolTest, a_page_lies_where_its_id_says) {
  const PageId page = pool_.acquire();
  EXPECT_EQ(pool_.data(page), memory_.get() + 4096 * index_of(page));
}

TEST_F(PagePoolTest, counts_every_state) {
  const PageId a = pool_.acquire(), b = pool_.acquire(PageState::kFilling);
  pool_.move(a, PageState::kSealed);
  pool_.move(b, PageState::kOrphaned);
  pool_.acquire();
  EXPECT_EQ(pool_.count(PageState::kSealed), 1u);
  EXPECT_EQ(pool_.count(PageState::kOrphaned), 1u);
  EXPECT_EQ(pool_.count(PageState::kWritable), 1u);
  EXPECT_EQ(pool_.count(PageState::kFree), 1u);
  pool_.check_counters();
  pool_.release(b);
  EXPECT_EQ(pool_.count(PageState::kFree), 2u);
}

TEST_F(PagePoolTest, counts_pinned_pages_not_pins) {
  const PageId page = pool_.acquire();
  pool_.move(page, PageState::kSealed);
  pool_.pin(page);
  pool_.pin(page);
  EXPECT_EQ(pool_.pinned(), 1u);
  pool_.unpin(page);
  EXPECT_EQ(pool_.pinned(), 1u);
  EXPECT_EQ(pool_.pins(page), 1u);
  pool_.unpin(page);
  EXPECT_EQ(pool_.pinned(), 0u);
}

// case K11
TEST_F(PagePoolTest, a_double_release_is_detected) {
  const PageId page = pool_.acquire();
  pool_.release(page);
  EXPECT_DEATH(pool_.release(page), "is_legal");
}

TEST_F(PagePoolTest, a_pinned_page_cannot_be_freed) {
  const PageId page = pool_.acquire();
  pool_.move(page, PageState::kSealed);
  pool_.pin(page);
  EXPECT_DEATH(pool_.release(page), "pins == 0");
}

TEST_F(PagePoolTest, only_sealed_pages_are_pinned) {
  const PageId page = pool_.acquire();
  EXPECT_DEATH(pool_.pin(page), "kSealed");
  EXPECT_DEATH(pool_.unpin(page), "pins > 0");
}

TEST_F(PagePoolTest, a_page_of_no_pool_is_refused) {
  EXPECT_DEATH(pool_.release(kNoPage), "CHECK");
  EXPECT_DEATH(pool_.pin(PageId{kPages}), "CHECK");
}

TEST_F(PagePoolTest, makes_exactly_the_moves_of_the_table) {
  const PageState states[] = {PageState::kFree, PageState::kWritable, PageState::kSealed,
                              PageState::kFilling, PageState::kOrphaned};
  // How a fresh page gets to each state.
  const auto page_in = [&](PageState state) {
    if (state == PageState::kFree) {
      const PageId page = pool_.acquire();
      pool_.release(page);
      return page;
    }
    const bool fills = state == PageState::kFilling;
    const PageId page = pool_.acquire(fills ? PageState::kFilling : PageState::kWritable);
    if (pool_.state(page) != state) pool_.move(page, state);
    return page;
  };
  for (PageState from : states) {
    for (PageState to : states) {
      if (from == PageState::kFree) continue;  // left through acquire() alone
      if (is_legal(from, to)) {
        const PageId page = page_in(from);
        pool_.move(page, to);
        EXPECT_EQ(pool_.state(page), to);
        if (to != PageState::kFree) pool_.release(page);
      } else {
        EXPECT_DEATH(pool_.move(page_in(from), to), "is_legal");
      }
    }
  }
  EXPECT_EQ(pool_.count(PageState::kFree), kPages);
}

TEST(page_pool, refuses_memory_that_is_not_aligned) {
  alignas(4096) static std::byte memory[8192];
  EXPECT_DEATH(PagePool(memory + 64, 4096, 1), "kPageAlignment");
  EXPECT_DEATH(PagePool(memory, 100, 1), "kPageAlignment");
}

}  // namespace
}  // namespace spillway::cache
