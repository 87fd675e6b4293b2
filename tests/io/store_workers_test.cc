// Checksums taken by workers: whatever happens to a page meanwhile, nothing but its bytes is
// served.
#include <gtest/gtest.h>

#include "tests/io/store_fixture.h"

namespace spillway::io {
namespace {

const std::string kPath = "store/pages.kv";

class StoreWorkers : public testing::Test {
 protected:
  StoreWorkers() {
    process_.has_workers = true;
    const auto opened = process_.open(store_options(200 * kSectorBytes));
    EXPECT_TRUE(opened.has_value());
  }
  ~StoreWorkers() override {
    if (process_.store != nullptr) EXPECT_EQ(process_.store->check_integrity(), "");
  }
  // Many, since a worker that is busy now and then leaves the work to the loop's thread.
  std::vector<std::pair<StoredPage, std::unique_ptr<TestPage>>> put_many() {
    std::vector<std::pair<StoredPage, std::unique_ptr<TestPage>>> pages;
    for (uint64_t i = 0; i < 20; ++i) {
      auto page = std::make_unique<TestPage>(i);
      auto stored = process_.put(*page);
      EXPECT_TRUE(stored.has_value());
      if (stored) pages.emplace_back(*stored, std::move(page));
    }
    return pages;
  }

  sim::SimFiles files_;
  SimProcess process_{files_};
};

TEST_F(StoreWorkers, take_the_checksums_of_what_is_written_and_read) {
  const auto pages = put_many();
  const uint64_t written = process_.workers.worked;
  EXPECT_GT(written, 10u);
  for (const auto& [stored, page] : pages) EXPECT_TRUE(process_.serves(stored, *page));
  EXPECT_GT(process_.workers.worked, written + 10);
}

TEST_F(StoreWorkers, who_find_other_bytes_make_a_miss_of_it) {  // case S1
  const auto pages = put_many();
  for (uint64_t bit = 0; bit < files_.find(kPath)->size() * 8; bit += 4096 * 8) {
    files_.find(kPath)->flip_bit(bit / 8, bit % 8);
  }
  for (const auto& [stored, page] : pages) {
    const Aligned read(stored.stored_bytes);
    const auto got = process_.get(stored, read);
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, ErrorCode::kCorrupt);
  }
  EXPECT_EQ(process_.store->stats().corrupt, pages.size());
}

// Its slot may hold another page by the time that the worker is done.
TEST_F(StoreWorkers, a_page_erased_while_they_look_at_it_is_gone_and_its_successor_stays) {
  process_.workers.work_takes = std::chrono::milliseconds(100);
  uint64_t gone = 0;
  for (uint64_t round = 0; round < 40; ++round) {
    const TestPage page(round);
    const auto stored = process_.put(page);
    ASSERT_TRUE(stored.has_value());
    const Aligned read(stored->stored_bytes);
    std::optional<Result<>> got;
    process_.scope.spawn(store_result(process_.store->get(stored->slot, stored->generation,
                                                          read.span(), read.owner(), process_.stop),
                                      &got));
    process_.run_until([&] { return got || process_.workers.working > 0; });
    process_.store->erase(stored->slot, stored->generation);
    const TestPage next(1000 + round);
    const auto kept = process_.put(next);
    ASSERT_TRUE(kept.has_value());
    process_.run_all();
    ASSERT_TRUE(got.has_value());
    if (*got) {
      EXPECT_EQ(read, page.bytes);
    } else {
      EXPECT_EQ(got->error().code, ErrorCode::kNotFound);
      ++gone;
    }
    EXPECT_TRUE(process_.serves(*kept, next));
  }
  EXPECT_GT(gone, 10u);
  EXPECT_EQ(process_.store->stats().corrupt, 0u);
}

TEST_F(StoreWorkers, closing_waits_for_what_they_do) {
  const auto pages = put_many();
  std::vector<std::unique_ptr<Aligned>> buffers;
  std::vector<std::optional<Result<>>> got(pages.size());
  for (size_t i = 0; i < pages.size(); ++i) {
    const StoredPage& stored = pages[i].first;
    buffers.push_back(std::make_unique<Aligned>(stored.stored_bytes));
    process_.scope.spawn(
        store_result(process_.store->get(stored.slot, stored.generation, buffers[i]->span(),
                                         buffers[i]->owner(), process_.stop),
                     &got[i]));
  }
  process_.run_until([&] { return process_.workers.working > 10; });
  process_.close();
  for (const auto& result : got) EXPECT_TRUE(result.has_value());
}

}  // namespace
}  // namespace spillway::io
