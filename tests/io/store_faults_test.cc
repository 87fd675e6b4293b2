// What the store does when its disk fails: each fault is a miss and a counter, never other bytes.
#include <gtest/gtest.h>

#include "io/store_format.h"
#include "tests/io/store_fixture.h"

namespace spillway::io {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kBytes = 200 * kSectorBytes;
const std::string kPath = "store/pages.kv";

class StoreFaults : public testing::Test {
 protected:
  StoreFaults() {
    const auto opened = process_.open(store_options(kBytes));
    EXPECT_TRUE(opened.has_value());
  }
  ~StoreFaults() override {
    if (process_.store != nullptr) EXPECT_EQ(process_.store->check_integrity(), "");
  }
  StoredPage put(const TestPage& page) {
    auto stored = process_.put(page);
    EXPECT_TRUE(stored.has_value()) << stored.error().message;
    return *stored;
  }
  BlockStoreStats stats() const { return process_.store->stats(); }
  sim::SimImage& image() { return *files_.find(kPath); }
  // Where a page's bytes lie, found by looking for them.
  uint64_t offset_of(const TestPage& page) {
    const Aligned there(page.bytes.span().size());
    for (uint64_t at = 0; at + there.span().size() <= image().size(); at += kSectorBytes) {
      image().read(at, there.span());
      if (there == page.bytes) return at;
    }
    ADD_FAILURE() << "the page is nowhere on the disk";
    return 0;
  }
  void write(uint64_t offset, const Aligned& bytes) {
    Prng random(1);
    image().write(offset, bytes.span(), random);
  }

  sim::SimFiles files_;
  SimProcess process_{files_};
};

// case S1
TEST_F(StoreFaults, a_flipped_bit_anywhere_in_a_page_is_a_miss) {
  const TestPage other(1000);
  const StoredPage kept = put(other);
  uint64_t flips = 0;
  for (uint64_t bit = 0; bit < 2 * kSectorBytes * 8; bit += 997) {
    const TestPage page(bit);
    const StoredPage stored = put(page);
    image().flip_bit(offset_of(page) + bit / 8, bit % 8);
    const Aligned read(stored.stored_bytes);
    const auto got = process_.get(stored, read);
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(stats().corrupt, ++flips);
    EXPECT_EQ(process_.get(stored, read).error().code, ErrorCode::kNotFound);
  }
  EXPECT_TRUE(process_.serves(kept, other));
  EXPECT_EQ(stats().pages, 1u);
}

// case S2
TEST_F(StoreFaults, a_valid_page_in_another_slot_is_a_miss) {
  const TestPage a(1), b(2);
  const StoredPage stored = put(a);
  put(b);
  write(offset_of(a), b.bytes);
  EXPECT_FALSE(process_.serves(stored, a));
  EXPECT_EQ(stats().corrupt, 1u);
}

// case S2
TEST_F(StoreFaults, a_page_of_another_store_is_a_miss) {
  const TestPage page(1);
  put(page);
  process_.close();
  sim::SimFiles other_files;
  SimProcess other(other_files);
  auto options = store_options(kBytes);
  options.seed = 2;  // another store, whose first page has the same slot, name and generation
  ASSERT_TRUE(other.open(options).has_value());
  const auto theirs = other.put(TestPage(1));
  ASSERT_TRUE(theirs.has_value());
  other.close();
  // Its index, in our file: not one page of it may come out.
  ASSERT_TRUE(process_.open(store_options(kBytes)).has_value());
  ASSERT_EQ(process_.store->stats().pages, 1u);
  process_.close();
  const auto from = other_files.find(kPath);
  for (uint64_t at = 2 * kSectorBytes; at < image().size(); at += kSectorBytes) {
    const Aligned sector(kSectorBytes);
    from->read(at, sector.span());
    write(at, sector);
  }
  ASSERT_TRUE(process_.open(store_options(kBytes)).has_value());
  EXPECT_EQ(process_.store->stats().pages, 0u);
}

// case S3
TEST_F(StoreFaults, a_write_that_left_the_old_bytes_is_a_miss) {
  // The same page in the same slot a second time; the disk keeps the bytes of the first.
  for (uint64_t i = 100; process_.store->free_slots(2 * kSectorBytes) > 1; ++i) put(TestPage(i));
  const TestPage page(1);
  const StoredPage first = put(page);
  EXPECT_TRUE(process_.serves(first, page));
  const uint64_t offset = offset_of(page);
  process_.store->erase(first.slot, first.generation);
  TestPage again(1);
  again.bytes = Aligned(again.bytes.span().size(), 77);  // so that a miss can be told from a hit
  const StoredPage second = put(again);
  ASSERT_EQ(second.slot, first.slot);
  EXPECT_NE(second.generation, first.generation);
  write(offset, page.bytes);
  EXPECT_FALSE(process_.serves(second, page));
  EXPECT_EQ(stats().corrupt, 1u);
  // And with the very same bytes: what counts is that this write left nothing.
  const StoredPage third = put(page);
  ASSERT_EQ(third.slot, first.slot);
  EXPECT_TRUE(process_.serves(third, page));
  process_.store->erase(third.slot, third.generation);
  process_.disk.faults.lost_write = 1;
  const StoredPage fourth = put(TestPage(2));
  ASSERT_EQ(fourth.slot, first.slot);
  process_.disk.faults.lost_write = 0;
  EXPECT_FALSE(process_.serves(fourth, TestPage(2)));
  EXPECT_EQ(stats().corrupt, 2u);
}

// case S4
TEST(store_faults, a_write_torn_at_any_512_bytes_and_a_kill_lose_that_page_alone) {
  for (const bool tear_the_index : {false, true}) {
    const uint64_t bytes = tear_the_index ? kSectorBytes : 2 * kSectorBytes;
    for (uint64_t torn = 0; torn <= bytes; torn += 512) {
      sim::SimFiles files;
      const TestPage before(1), page(2);
      {
        SimProcess process(files);
        ASSERT_TRUE(process.open(store_options(kBytes)).has_value());
        ASSERT_TRUE(process.put(before).has_value());
        std::optional<Result<StoredPage>> put;
        process.scope.spawn(store_result(
            process.store->put(page.name(), page.payload(), page.bytes.owner(), process.stop),
            &put));
        // The page's write comes first, then a sync, then its record's.
        const uint64_t syncs = process.disk.stats().syncs;
        if (tear_the_index) {
          process.run_until([&] { return process.disk.stats().syncs == syncs + 1; });
        }
        process.disk.faults.tear_next_write_after = torn;
        process.run_until([&] { return put.has_value(); });
        process.disk.crash(sim::Crash::kProcess);
      }
      SimProcess process(files);
      ASSERT_TRUE(process.open(store_options(kBytes)).has_value());
      const auto visible = process.visible();
      ASSERT_TRUE(visible.contains(1));
      EXPECT_TRUE(process.serves(visible.at(1), before));
      // The sector's last bytes are zeros: without the last 512 bytes a record may be whole.
      EXPECT_TRUE(visible.contains(2) || (tear_the_index && torn < bytes)) << torn;
      if (visible.contains(2)) {
        EXPECT_EQ(process.serves(visible.at(2), page), tear_the_index || torn == bytes) << torn;
      }
    }
  }
}

// case S6
TEST_F(StoreFaults, a_short_read_is_a_miss) {
  const TestPage page(1);
  const StoredPage stored = put(page);
  process_.disk.faults.short_read = 1;
  EXPECT_FALSE(process_.serves(stored, page));
  EXPECT_EQ(stats().corrupt, 1u);
}

TEST_F(StoreFaults, a_page_survives_one_read_error_and_not_two_in_a_row) {
  const TestPage page(1);
  const StoredPage stored = put(page);
  const auto fail_once = [&] {
    process_.disk.faults.read_error = 1;
    EXPECT_FALSE(process_.serves(stored, page));
    process_.disk.faults.read_error = 0;
  };
  fail_once();
  EXPECT_TRUE(process_.serves(stored, page));
  fail_once();
  fail_once();
  EXPECT_EQ(stats().read_errors, 3u);
  const Aligned read(stored.stored_bytes);
  EXPECT_EQ(process_.get(stored, read).error().code, ErrorCode::kNotFound);
}

// cases S7 and S11
TEST_F(StoreFaults, a_stalled_read_ends_at_its_deadline_and_keeps_page_slot_and_memory) {
  const TestPage page(1);
  const StoredPage stored = put(page);
  process_.disk.faults.stall = 1;
  process_.disk.faults.stall_time = 10s;
  std::weak_ptr<void> memory;
  {
    const Aligned read(stored.stored_bytes);
    memory = read.watch();
    const auto begun = process_.clock.now();
    EXPECT_EQ(process_.get(stored, read).error().code, ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(process_.clock.now() - begun, 2s);
  }
  process_.disk.faults.stall = 0;
  EXPECT_EQ(stats().deadlines, 1u);
  EXPECT_FALSE(memory.expired());
  const uint64_t used = stats().used_bytes;
  // Erased while that read is still in flight: the slot must wait for it.
  process_.store->erase(stored.slot, stored.generation);
  const StoredPage other = put(TestPage(2));
  EXPECT_NE(other.slot, stored.slot);
  EXPECT_EQ(stats().used_bytes, 2 * used);
  while (!memory.expired()) process_.step();
  EXPECT_EQ(stats().used_bytes, used);
}

TEST_F(StoreFaults, a_page_kept_through_a_stall_is_served_later) {
  const TestPage page(1);
  const StoredPage stored = put(page);
  process_.disk.faults.stall = 1;
  EXPECT_FALSE(process_.serves(stored, page));
  process_.disk.faults.stall = 0;
  EXPECT_TRUE(process_.serves(stored, page));
}

// case S7
TEST_F(StoreFaults, a_stalled_write_keeps_its_slot_until_it_has_ended) {
  process_.disk.faults.stall = 1;
  process_.disk.faults.stall_time = 60s;
  const auto put_late = process_.put(TestPage(1));
  ASSERT_FALSE(put_late.has_value());
  EXPECT_EQ(put_late.error().code, ErrorCode::kDeadlineExceeded);
  process_.disk.faults.stall = 0;
  EXPECT_EQ(stats().used_bytes, 2 * kSectorBytes);
  const TestPage other(2);
  const StoredPage stored = put(other);
  while (stats().used_bytes > 2 * kSectorBytes) process_.step();
  EXPECT_TRUE(process_.serves(stored, other));  // the late write did not hit it
}

// case S8
TEST_F(StoreFaults, a_page_is_invisible_until_it_is_durable) {
  const TestPage page(1);
  std::optional<Result<StoredPage>> stored;
  process_.disk.faults.latency_max = 100us;
  process_.scope.spawn(store_result(
      process_.store->put(page.name(), page.payload(), page.bytes.owner(), process_.stop),
      &stored));
  const uint64_t syncs = process_.disk.stats().syncs;
  while (!stored) {
    EXPECT_TRUE(process_.visible().empty() || process_.disk.stats().syncs == syncs + 2);
    process_.step();
  }
  EXPECT_EQ(process_.visible().size(), 1u);
}

// case S9
TEST_F(StoreFaults, a_full_disk_makes_it_read_only_until_a_later_try_succeeds) {
  const TestPage page(1);
  const StoredPage stored = put(page);
  process_.disk.faults.no_space = 1;
  const uint64_t writes = process_.disk.stats().writes;
  const auto refused = process_.put(TestPage(2));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(process_.disk.stats().writes, writes + 2);  // one retry
  EXPECT_TRUE(stats().read_only);
  EXPECT_NE(stats().why_read_only, "");
  EXPECT_EQ(stats().used_bytes, 2 * kSectorBytes);
  EXPECT_TRUE(process_.serves(stored, page));  // and serving goes on
  EXPECT_FALSE(process_.put(TestPage(3)).has_value());
  EXPECT_EQ(process_.disk.stats().writes, writes + 2);  // not even tried
  process_.disk.faults.no_space = 0;
  process_.clock.advance(31s);
  const TestPage later(4);
  EXPECT_TRUE(process_.serves(put(later), later));
  EXPECT_FALSE(stats().read_only);
}

TEST_F(StoreFaults, a_disk_that_takes_no_writes_still_serves_what_it_has) {
  const TestPage page(1);
  put(page);
  process_.close();
  process_.disk.faults.write_error = 1;
  // Opening a store changes nothing that is there, so one that cannot be opened is not lost either.
  ASSERT_TRUE(process_.open(store_options(kBytes)).has_value());
  EXPECT_TRUE(stats().read_only);
  EXPECT_FALSE(process_.put(TestPage(2)).has_value());
  EXPECT_TRUE(process_.serves(process_.visible().at(1), page));
  process_.disk.faults.write_error = 0;
  process_.clock.advance(31s);
  const TestPage later(3);
  EXPECT_TRUE(process_.serves(put(later), later));
  process_.close();
  ASSERT_TRUE(process_.open(store_options(kBytes)).has_value());
  EXPECT_EQ(process_.visible().size(), 2u);
}

// case S9: a probe waits for the slots of erased pages, and then the index cannot be written.
TEST(store_faults, a_probe_that_waits_for_a_slot_ends_where_the_index_cannot_be_written) {
  sim::SimFiles files;
  SimProcess process(files);
  constexpr uint32_t kSmall = 2 * kSectorBytes, kLarge = 8 * kSectorBytes;
  ASSERT_TRUE(process.open(store_options(kBytes, {kSmall, kLarge})).has_value());
  std::vector<StoredPage> pages;
  while (process.store->free_slots(kSmall) > 0) {
    const auto stored = process.put(TestPage(pages.size()));
    ASSERT_TRUE(stored.has_value());
    pages.push_back(*stored);
  }
  process.store->erase(pages[0].slot, pages[0].generation);
  process.settle();
  process.disk.faults.no_space = 1;
  EXPECT_FALSE(process.put(TestPage(1000)).has_value());
  process.disk.faults.no_space = 0;
  ASSERT_TRUE(process.store->stats().read_only);
  process.clock.advance(31s);
  process.disk.faults.failed_sync = 1;
  for (const StoredPage& page : pages) process.store->erase(page.slot, page.generation);
  const auto refused = process.put(TestPage(1001, kLarge));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted) << refused.error().message;
  process.disk.faults.failed_sync = 0;
}

TEST(store_faults, a_disk_without_room_for_it_is_said_so_at_once) {
  sim::SimFiles files;
  SimProcess process(files);
  process.disk.faults.no_space_to_allocate = true;
  const auto opened = process.open(store_options(kBytes));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::kResourceExhausted);
  process.disk.faults.no_space_to_allocate = false;
  EXPECT_TRUE(process.open(store_options(kBytes)).has_value());
}

// A disk that fails to read may do better next time: nothing is set aside.
TEST_F(StoreFaults, a_superblock_that_cannot_be_read_is_no_reason_to_begin_anew) {
  put(TestPage(1));
  process_.close();
  process_.disk.faults.read_error = 1;
  const auto refused = process_.open(store_options(kBytes));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  process_.disk.faults.read_error = 0;
  ASSERT_TRUE(process_.open(store_options(kBytes)).has_value());
  EXPECT_EQ(process_.visible().size(), 1u);
  EXPECT_EQ(files_.all().size(), 1u);
}

// case S10
TEST_F(StoreFaults, what_a_failed_flush_was_for_is_dropped_and_never_taken_for_clean) {
  const TestPage before(1), lost(2), after(3);
  put(before);
  process_.disk.faults.failed_sync = 1;
  const auto refused = process_.put(lost);
  ASSERT_FALSE(refused.has_value());
  process_.run_until([&] { return stats().read_only; });  // mending the index failed, too
  EXPECT_EQ(stats().flush_errors, 2u);
  process_.disk.faults.failed_sync = 0;
  EXPECT_FALSE(process_.put(TestPage(9)).has_value());  // not before it is probed
  process_.clock.advance(31s);
  put(after);
  EXPECT_FALSE(stats().read_only);
  process_.disk.crash(sim::Crash::kPower);
  process_.close();
  SimProcess next(files_, 5);
  ASSERT_TRUE(next.open(store_options(kBytes)).has_value());
  const auto visible = next.visible();
  EXPECT_EQ(visible.size(), 2u);
  EXPECT_TRUE(next.serves(visible.at(1), before));
  EXPECT_TRUE(next.serves(visible.at(3), after));
}

// case S10
TEST(store_faults, with_flushes_that_fail_at_random_published_pages_survive_power_cuts) {
  uint64_t survived = 0, flush_errors = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    sim::SimFiles files;
    std::map<uint64_t, bool> published;
    {
      SimProcess process(files, seed);
      ASSERT_TRUE(process.open(store_options(kBytes)).has_value());
      process.disk.faults.failed_sync = 0.2;
      process.disk.faults.latency_max = 100us;
      for (uint64_t i = 0; i < 30; ++i) {
        std::vector<std::unique_ptr<TestPage>> pages;
        std::vector<std::optional<Result<StoredPage>>> results(3);
        for (uint64_t k = 0; k < results.size(); ++k) {
          pages.push_back(std::make_unique<TestPage>(i * results.size() + k));
          const TestPage& page = *pages.back();
          process.scope.spawn(store_result(
              process.store->put(page.name(), page.payload(), page.bytes.owner(), process.stop),
              &results[k]));
        }
        process.run_until([&] {
          for (const auto& result : results) {
            if (!result) return false;
          }
          return true;
        });
        for (uint64_t k = 0; k < results.size(); ++k) {
          if (results[k]->has_value()) published[pages[k]->number] = true;
        }
        if (i % 5 == 4) process.clock.advance(31s);
        ASSERT_EQ(process.store->check_integrity(), "");
        const auto visible = process.visible();
        if (visible.size() > 20) {
          for (const auto& [number, stored] : visible) {
            process.store->erase(stored.slot, stored.generation);
            published.erase(number);
          }
        }
      }
      flush_errors += process.store->stats().flush_errors;
      process.disk.crash(sim::Crash::kPower);
    }
    SimProcess process(files, seed);
    ASSERT_TRUE(process.open(store_options(kBytes)).has_value());
    const auto visible = process.visible();
    for (const auto& [number, yes] : published) {
      ASSERT_TRUE(visible.contains(number)) << "seed " << seed;
    }
    for (const auto& [number, stored] : visible) {
      ASSERT_TRUE(process.serves(stored, TestPage(number))) << "seed " << seed;
      ++survived;
    }
  }
  EXPECT_GT(survived, 300u);
  EXPECT_GT(flush_errors, 300u);
}

}  // namespace
}  // namespace spillway::io
