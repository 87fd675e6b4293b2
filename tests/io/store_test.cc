// What a store does on any ring: io_uring and threads in a real directory, and the simulated disk.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/io/ring_under_test.h"
#include "tests/io/store_fixture.h"

namespace spillway::io {
namespace {

constexpr uint32_t kPage = 2 * kSectorBytes;
constexpr uint64_t kBytes = 300 * kSectorBytes;

class StoreTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    under_test_ = make_ring_under_test(GetParam());
    if (under_test_ == nullptr) GTEST_SKIP() << "io_uring is refused here";
    open(options());
  }
  void TearDown() override { close(); }

  BlockStoreOptions options(uint64_t bytes = kBytes, std::vector<uint32_t> classes = {kPage}) {
    auto options = store_options(bytes, std::move(classes));
    options.directory = directory_.path();
    options.seed.reset();
    return options;
  }
  bool real() const { return GetParam() != std::string("sim"); }
  Ring& ring() { return under_test_->ring(); }
  template <class T>
  T run(Task<T> task) {
    std::optional<T> result;
    under_test_->loop().run(store_result(std::move(task), &result));
    return std::move(*result);
  }
  Result<> try_open(const BlockStoreOptions& options) {
    auto opened = run(BlockStore::open(options, under_test_->loop(), ring()));
    if (!opened) return opened.error();
    store_ = std::move(*opened);
    return {};
  }
  void open(const BlockStoreOptions& options) {
    const auto opened = try_open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
  }
  void close() {
    if (store_ == nullptr) return;
    EXPECT_EQ(store_->check_integrity(), "");
    under_test_->loop().run(store_->close());
    store_.reset();
  }
  void reopen() {
    close();
    open(options());
  }

  Result<StoredPage> put(const TestPage& page) {
    return run(store_->put(page.name(), page.payload(), page.bytes.owner(), stop_));
  }
  Task<> put_into(const TestPage* page, Result<StoredPage>* to) {
    *to = co_await store_->put(page->name(), page->payload(), page->bytes.owner(), stop_);
  }
  Task<> put_together(std::vector<std::unique_ptr<TestPage>>* pages,
                      std::vector<Result<StoredPage>>* stored) {
    Scope puts(under_test_->loop().executor());
    stored->resize(pages->size());
    for (size_t i = 0; i < pages->size(); ++i) {
      puts.spawn(put_into((*pages)[i].get(), &(*stored)[i]));
    }
    co_await puts.join();
  }
  std::vector<Result<StoredPage>> put_all(std::vector<std::unique_ptr<TestPage>>& pages) {
    std::vector<Result<StoredPage>> stored;
    under_test_->loop().run(put_together(&pages, &stored));
    return stored;
  }
  bool serves(const StoredPage& stored, const TestPage& page) {
    const Aligned read(stored.stored_bytes);
    const auto got =
        run(store_->get(stored.slot, stored.generation, read.span(), read.owner(), stop_));
    return got.has_value() && read == page.bytes;
  }
  std::map<uint64_t, StoredPage> visible() const {
    std::map<uint64_t, StoredPage> found;
    store_->for_each([&](const StoredPage& page) { found.emplace(page.name.key[0] - 1, page); });
    return found;
  }
  void overwrite(const std::string& name, uint64_t offset, const Aligned& with) {
    auto file = ring().open(directory_ / name, {});
    ASSERT_TRUE(file.has_value());
    ASSERT_TRUE(under_test_->write(*file, offset, with));
  }
  bool there(const std::string& name) { return ring().open(directory_ / name, {}).has_value(); }

  TestDirectory directory_;
  std::unique_ptr<RingUnderTest> under_test_;
  std::unique_ptr<BlockStore> store_;
  StopFlag stop_;
};

TEST_P(StoreTest, pages_are_served_with_all_that_was_said_of_them_also_after_a_restart) {
  const uint64_t secret = store_->secret();
  std::vector<std::unique_ptr<TestPage>> pages;
  for (uint64_t i = 0; i < 40; ++i) {
    pages.push_back(std::make_unique<TestPage>(i, i % 2 == 0 ? kPage : kPage / 2,
                                               "space " + std::to_string(i % 3)));
  }
  for (const auto& stored : put_all(pages)) ASSERT_TRUE(stored.has_value());
  for (const bool again : {false, true}) {
    if (again) reopen();
    EXPECT_EQ(store_->secret(), secret);
    const auto found = visible();
    ASSERT_EQ(found.size(), pages.size());
    for (const auto& page : pages) {
      const StoredPage& stored = found.at(page->number);
      const PageName name = page->name();
      EXPECT_EQ(stored.name.space, page->space);
      EXPECT_EQ(stored.name.key, name.key);
      EXPECT_EQ(stored.name.uid, name.uid);
      EXPECT_EQ(stored.name.parent_uid, name.parent_uid);
      EXPECT_EQ(stored.name.position, name.position);
      EXPECT_EQ(stored.name.group, name.group);
      EXPECT_TRUE(std::equal(name.tokens.begin(), name.tokens.end(), stored.name.tokens.begin(),
                             stored.name.tokens.end()));
      EXPECT_EQ(stored.encoded_bytes, page->payload().encoded_bytes);
      EXPECT_EQ(stored.stored_bytes, page->bytes.span().size());
      EXPECT_TRUE(serves(stored, *page));
    }
    EXPECT_EQ(store_->stats().used_bytes, pages.size() * kPage);
    EXPECT_EQ(store_->stats().corrupt, 0u);
  }
}

TEST_P(StoreTest, an_erased_page_stays_away_also_after_a_restart) {
  const TestPage kept(1), erased(2);
  ASSERT_TRUE(put(kept).has_value());
  const auto stored = put(erased);
  store_->erase(stored->slot, stored->generation);
  store_->erase(stored->slot, stored->generation);  // again: nothing
  EXPECT_FALSE(serves(*stored, erased));
  EXPECT_EQ(visible().size(), 1u);
  reopen();
  EXPECT_EQ(visible().size(), 1u);
  EXPECT_TRUE(serves(visible().at(1), kept));
  EXPECT_EQ(store_->stats().used_bytes, kPage);
}

// case S3: also a page that a killed process wrote and never published has had its generation.
TEST_P(StoreTest, generations_only_grow_also_over_restarts) {
  uint64_t last = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    for (uint64_t k = 0; k < 3; ++k) {
      const auto stored = put(TestPage(i * 3 + k));
      ASSERT_TRUE(stored.has_value());
      EXPECT_GT(stored->generation, last);
      last = stored->generation;
      store_->erase(stored->slot, stored->generation);
    }
    reopen();
  }
}

// Bound and capacity: every slot can be used, the file never exceeds its size, and a full store
// takes a page again as soon as one is erased.
TEST_P(StoreTest, holds_exactly_what_it_says_and_no_more) {
  const uint64_t room = store_->free_slots(kPage);
  EXPECT_EQ(room, store_->stats().capacity_bytes / kPage);
  std::vector<std::unique_ptr<TestPage>> pages;
  for (uint64_t i = 0; i < room; ++i) pages.push_back(std::make_unique<TestPage>(i));
  for (const auto& stored : put_all(pages)) ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(store_->free_slots(kPage), 0u);
  const auto refused = put(TestPage(999));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  for (uint64_t i = 0; i < 30; ++i) {
    const StoredPage old = visible().begin()->second;
    store_->erase(old.slot, old.generation);
    EXPECT_EQ(store_->free_slots(kPage), 1u);
    ASSERT_TRUE(put(TestPage(1000 + i)).has_value()) << "waits for the erased slot";
    EXPECT_EQ(store_->free_slots(kPage), 0u);
  }
  EXPECT_EQ(store_->stats().used_bytes, room * kPage);
  EXPECT_LE(store_->stats().file_bytes, kBytes);
  if (real()) {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      struct stat of{};
      ASSERT_EQ(::stat(entry.path().c_str(), &of), 0);
      bytes += static_cast<uint64_t>(of.st_size);
      EXPECT_EQ(of.st_mode & 0777, 0600u);  // case I4
    }
    EXPECT_LE(bytes, kBytes);
  }
}

TEST_P(StoreTest, pages_put_together_share_flushes_and_lie_next_to_each_other) {
  std::vector<std::unique_ptr<TestPage>> pages;
  for (uint64_t i = 0; i < 32; ++i) pages.push_back(std::make_unique<TestPage>(i));
  const uint64_t syncs = ring().stats().syncs;
  const auto stored = put_all(pages);
  EXPECT_LE(ring().stats().syncs - syncs, real() ? 33u : 6u);
  for (size_t i = 0; i < stored.size(); ++i) {
    ASSERT_TRUE(stored[i].has_value());
    if (i == 0) continue;
    EXPECT_EQ(static_cast<uint32_t>(stored[i]->slot),
              static_cast<uint32_t>(stored[i - 1]->slot) + kPage / kSectorBytes);
  }
}

TEST_P(StoreTest, a_class_gets_the_room_that_another_has_given_back) {
  close();
  const std::vector<uint32_t> classes{kSectorBytes, 6 * kSectorBytes};
  std::filesystem::remove_all(directory_ / "pages.kv");
  open(options(kBytes, classes));
  std::vector<std::unique_ptr<TestPage>> small;
  const uint64_t room = store_->free_slots(kSectorBytes);
  for (uint64_t i = 0; i < room; ++i) small.push_back(std::make_unique<TestPage>(i, kSectorBytes));
  std::vector<StoredPage> stored;
  for (const auto& put : put_all(small)) stored.push_back(*put);
  EXPECT_EQ(store_->free_slots(6 * kSectorBytes), 0u);
  for (const StoredPage& page : stored) store_->erase(page.slot, page.generation);
  const uint64_t large_room = store_->stats().capacity_bytes / (6 * kSectorBytes);
  for (uint64_t i = 0; i < large_room; ++i) {
    ASSERT_TRUE(put(TestPage(5000 + i, 6 * kSectorBytes)).has_value()) << i;
  }
  close();
}

// What a codec made smaller: each page takes the units of its own class and no more, those put
// together lie together, and the sum is exact after a restart, with or without such classes.
TEST_P(StoreTest, pages_that_got_smaller_take_less_room_next_to_each_other) {
  close();
  std::filesystem::remove_all(directory_ / "pages.kv");
  constexpr uint32_t kWhole = 16 * kSectorBytes;
  BlockStoreOptions smaller = options(2 * kBytes, {kWhole});
  smaller.smaller_slots = true;
  open(smaller);
  const uint64_t whole_pages = store_->free_slots(kWhole);
  std::vector<std::unique_ptr<TestPage>> pages;
  uint64_t units = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    const uint32_t taken = 11 + static_cast<uint32_t>(i % 3);
    units += taken;
    pages.push_back(std::make_unique<TestPage>(i, taken * kSectorBytes));
  }
  const auto stored = put_all(pages);
  uint32_t end = static_cast<uint32_t>(stored[0]->slot);
  for (size_t i = 0; i < stored.size(); ++i) {
    EXPECT_EQ(static_cast<uint32_t>(stored[i]->slot), end);
    end += pages[i]->bytes.span().size() / kSectorBytes;
  }
  EXPECT_EQ(store_->stats().used_bytes, units * kSectorBytes);
  EXPECT_GT(store_->free_slots(11 * kSectorBytes) + pages.size(), whole_pages);
  for (const bool again : {true, false}) {
    close();
    smaller.smaller_slots = again;
    open(smaller);
    EXPECT_EQ(store_->stats().used_bytes, units * kSectorBytes);
    for (size_t i = 0; i < stored.size(); ++i) EXPECT_TRUE(serves(*stored[i], *pages[i]));
  }
  // One that would fit a smaller slot takes a whole one where there are no smaller ones.
  ASSERT_TRUE(put(TestPage(90, kSectorBytes)).has_value());
  EXPECT_EQ(store_->stats().used_bytes, units * kSectorBytes + kWhole);
}

// case S12
TEST_P(StoreTest, a_second_store_in_the_same_place_is_refused) {
  auto second = run(BlockStore::open(options(), under_test_->loop(), ring()));
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  reopen();
}

// case S13
TEST_P(StoreTest, the_same_key_in_another_namespace_is_another_page) {
  const TestPage ours(1, kPage, "weights A, tenant, salt");
  TestPage theirs(1, kPage, "weights B, tenant, salt");
  theirs.bytes = Aligned(kPage, 99);
  const auto a = put(ours);
  const auto b = put(theirs);
  reopen();
  uint64_t found = 0;
  store_->for_each([&](const StoredPage& page) {
    ++found;
    const bool is_ours = page.name.space == ours.space;
    EXPECT_TRUE(is_ours || page.name.space == theirs.space);
    EXPECT_EQ(page.slot, is_ours ? a->slot : b->slot);
  });
  EXPECT_EQ(found, 2u);
  EXPECT_TRUE(serves(*a, ours));
  EXPECT_TRUE(serves(*b, theirs));
}

// case S14
TEST_P(StoreTest, off_and_on_again_brings_nothing_stale) {
  const auto stored = put(TestPage(1));
  store_->erase(stored->slot, stored->generation);
  ASSERT_TRUE(put(TestPage(2)).has_value());
  for (int i = 0; i < 3; ++i) {
    reopen();
    EXPECT_EQ(visible().size(), 1u);
    EXPECT_TRUE(serves(visible().at(2), TestPage(2)));
  }
}

// case S14
TEST_P(StoreTest, a_hostile_superblock_gives_a_new_store_and_keeps_the_old_file) {
  ASSERT_TRUE(put(TestPage(1)).has_value());
  close();
  overwrite("pages.kv", 0, Aligned(2 * kSectorBytes, 5));
  open(options());
  EXPECT_TRUE(visible().empty());
  EXPECT_TRUE(there("pages.kv.old"));
  ASSERT_TRUE(put(TestPage(2)).has_value());
  reopen();
  EXPECT_EQ(visible().size(), 1u);
}

// The older one of the two, each time; a new store has both from the beginning.
TEST_P(StoreTest, one_damaged_superblock_loses_nothing) {
  for (const uint64_t which : {1, 0}) {
    ASSERT_TRUE(put(TestPage(which)).has_value());
    close();
    overwrite("pages.kv", which * kSectorBytes, Aligned(kSectorBytes, 5));
    open(options());
    EXPECT_FALSE(there("pages.kv.old"));
    EXPECT_EQ(visible().size(), which == 1 ? 1u : 2u);
    for (const auto& [number, stored] : visible()) EXPECT_TRUE(serves(stored, TestPage(number)));
  }
}

// The newer one: what the older one names is a store of a while ago, and true.
TEST_P(StoreTest, a_damaged_newer_superblock_gives_no_wrong_page) {
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(put(TestPage(i)).has_value());
  close();
  overwrite("pages.kv", 0, Aligned(kSectorBytes, 5));  // sequence 2 of a new store
  open(options());
  EXPECT_FALSE(there("pages.kv.old"));
  for (const auto& [number, stored] : visible()) EXPECT_TRUE(serves(stored, TestPage(number)));
  EXPECT_TRUE(put(TestPage(100)).has_value());
}

TEST_P(StoreTest, a_store_of_another_size_keeps_the_pages_that_fit) {
  std::vector<std::unique_ptr<TestPage>> pages;
  for (uint64_t i = 0; i < store_->free_slots(kPage); ++i) {
    pages.push_back(std::make_unique<TestPage>(i));
  }
  for (const auto& stored : put_all(pages)) ASSERT_TRUE(stored.has_value());
  for (const uint64_t bytes : {kBytes * 5 / 4, kBytes, kBytes / 2}) {
    close();
    open(options(bytes));
    const auto found = visible();
    const uint64_t most = store_->stats().capacity_bytes / kPage;
    EXPECT_EQ(found.size(), std::min<uint64_t>(most, pages.size()));
    for (const auto& [number, stored] : found) EXPECT_TRUE(serves(stored, *pages[number]));
    EXPECT_EQ(store_->stats().file_bytes, bytes);
    EXPECT_FALSE(there("pages.kv.old"));
    EXPECT_EQ(ring().open(directory_ / "pages.kv", {}).value()->size(), bytes);
  }
  close();
  open(options(kBytes * 8));  // its index would be too small
  EXPECT_TRUE(visible().empty());
  EXPECT_TRUE(there("pages.kv.old"));
  close();
}

TEST_P(StoreTest, says_how_many_bytes_a_page_takes_at_least) {
  close();
  std::filesystem::remove(directory_ / "pages.kv");
  const auto refused = try_open(options(10 * kSectorBytes));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  const auto least = std::stoull(refused.error().message.substr(
      refused.error().message.find("at least ") + std::string("at least ").size()));
  EXPECT_FALSE(try_open(options(least - kSectorBytes)).has_value());
  open(options(least));
  EXPECT_TRUE(put(TestPage(1)).has_value());
  close();
}

TEST_P(StoreTest, refuses_what_no_slot_holds_and_names_too_long_for_it) {
  const TestPage large(1, 2 * kPage);
  EXPECT_EQ(put(large).error().code, ErrorCode::kInvalidArgument);
  const TestPage long_space(2, kPage, std::string(4000, 'x'));
  EXPECT_EQ(put(long_space).error().code, ErrorCode::kInvalidArgument);
  TestPage many_tokens(3);
  many_tokens.tokens.resize(kSlotTokensMax + 1);
  EXPECT_EQ(put(many_tokens).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(store_->free_slots(2 * kPage), 0u);
  EXPECT_EQ(store_->stats().used_bytes, 0u);
}

TEST_P(StoreTest, the_longest_names_fit_and_come_back) {
  for (uint64_t i = 0; i < 6; ++i) {
    TestPage page(i, kPage, std::string(3000, static_cast<char>('a' + i)));
    page.tokens.resize(kSlotTokensMax, -5);
    ASSERT_TRUE(put(page).has_value());
  }
  reopen();
  EXPECT_EQ(visible().size(), 6u);
  EXPECT_EQ(visible().at(5).name.space, std::string(3000, 'f'));
  EXPECT_EQ(visible().at(5).name.tokens.size(), kSlotTokensMax);
}

// The index is bounded as the slots are: with records far longer than planned it fills first.
TEST_P(StoreTest, a_full_index_refuses_pages_and_loses_none) {
  close();
  open(options(kBytes + kSectorBytes, {kSectorBytes}));  // a new class, so that slots outnumber it
  uint64_t stored = 0;
  for (;; ++stored) {
    TestPage page(stored, kSectorBytes, "space " + std::to_string(stored % 50));
    page.tokens.resize(kSlotTokensMax, 9);
    const auto put_one = put(page);
    if (put_one) continue;
    EXPECT_EQ(put_one.error().code, ErrorCode::kResourceExhausted);
    break;
  }
  EXPECT_EQ(store_->check_integrity(), "");
  EXPECT_GT(stored, 10u);
  EXPECT_LT(store_->stats().used_bytes, store_->stats().capacity_bytes);
  close();
  open(options(kBytes + kSectorBytes, {kSectorBytes}));
  EXPECT_EQ(visible().size(), stored);
  for (const auto& [number, page] : visible()) {
    EXPECT_TRUE(serves(page, TestPage(number, kSectorBytes)));
  }
  close();
}

TEST_P(StoreTest, namespaces_without_pages_are_forgotten) {
  for (uint64_t i = 0; i < 120; ++i) {
    const auto stored = put(TestPage(i, kPage, std::string(700, 'n') + std::to_string(i)));
    ASSERT_TRUE(stored.has_value());
    store_->erase(stored->slot, stored->generation);
    EXPECT_LE(store_->stats().namespaces, 60u);
  }
}

TEST_P(StoreTest, scrubbing_goes_through_all_pages_once_a_round_and_finds_what_is_damaged) {
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(put(TestPage(i)).has_value());
  EXPECT_TRUE(serves(visible().at(3), TestPage(3)));  // a read verifies as well
  const uint64_t reads = ring().stats().reads;
  uint64_t rounds = 0;
  while (run(store_->scrub_one(stop_))) ++rounds;
  EXPECT_EQ(rounds, 9u);
  EXPECT_EQ(ring().stats().reads, reads + 9);
  // The last pages' bytes, all of them: the area is the end of the file.
  const uint64_t area = kBytes - store_->stats().capacity_bytes;
  const auto slot = static_cast<uint64_t>(visible().at(4).slot);
  overwrite("pages.kv", area + slot * kSectorBytes, Aligned(kSectorBytes, 1234));
  while (run(store_->scrub_one(stop_))) {
  }
  EXPECT_EQ(store_->stats().corrupt, 1u);
  EXPECT_EQ(visible().size(), 9u);
}

TEST_P(StoreTest, a_scrub_that_is_called_off_is_done_again) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(put(TestPage(i)).has_value());
  StopFlag stopped;
  stopped.stop();
  for (int i = 0; i < 3; ++i) {
    const auto called_off = run(store_->scrub_one(stopped));
    ASSERT_TRUE(called_off.has_value());
    EXPECT_FALSE(called_off->lost);
    ASSERT_FALSE(called_off->read.has_value());
    EXPECT_EQ(called_off->read.error().code, ErrorCode::kCancelled);
  }
  std::set<SlotId> slots;
  while (const auto page = run(store_->scrub_one(stop_))) {
    EXPECT_TRUE(page->read.has_value());
    slots.insert(page->slot);
  }
  EXPECT_EQ(slots.size(), 4u);
}

// Those that a load has verified are passed over, however many there are.
TEST_P(StoreTest, a_scrub_says_which_page_it_was) {
  constexpr uint64_t kPages = 300, kRoom = 600 * kSectorBytes;
  close();
  open(options(kRoom, {kSectorBytes}));
  for (uint64_t i = 0; i < kPages; ++i) ASSERT_TRUE(put(TestPage(i, kSectorBytes)).has_value());
  const auto last = visible().at(kPages - 1);
  for (const auto& [number, page] : visible()) {
    if (number + 1 < kPages) EXPECT_TRUE(serves(page, TestPage(number, kSectorBytes)));
  }
  const uint64_t area = kRoom - store_->stats().capacity_bytes;
  overwrite("pages.kv", area + static_cast<uint64_t>(last.slot) * kSectorBytes,
            Aligned(kSectorBytes, 1234));
  const uint64_t reads = ring().stats().reads;
  const auto page = run(store_->scrub_one(stop_));
  ASSERT_TRUE(page.has_value());
  EXPECT_EQ(ring().stats().reads, reads + 1);
  EXPECT_EQ(page->slot, last.slot);
  EXPECT_EQ(page->generation, last.generation);
  EXPECT_EQ(page->uid, kPages - 1);
  EXPECT_TRUE(page->lost);
  ASSERT_FALSE(page->read.has_value());
  EXPECT_EQ(page->read.error().code, ErrorCode::kCorrupt);
}

INSTANTIATE_TEST_SUITE_P(each, StoreTest, testing::Values("sim", "threads", "uring"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace spillway::io
