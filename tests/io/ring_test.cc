// What every ring does, whatever moves its bytes: io_uring, threads, the simulated disk.
#include "io/ring.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/io/ring_under_test.h"

namespace spillway::io {
namespace {

using namespace std::chrono_literals;

constexpr size_t kPage = kSectorBytes;
constexpr size_t kMiB = size_t{1} << 20;

class RingTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    under_test_ = make_ring_under_test(GetParam());
    if (under_test_ == nullptr) GTEST_SKIP() << "io_uring is refused here";
    file_ = under_test_->open(directory_ / "a");
  }
  Ring& ring() { return under_test_->ring(); }
  EngineLoop& loop() { return under_test_->loop(); }
  // What the kernel ends only now was let go of too early.
  void expect_nothing_comes_late() {
    const auto sleep = [](EngineLoop* loop) -> Task<> {
      StopFlag never;
      (void)co_await loop->sleep_for(100ms, never);
    };
    loop().run(sleep(&loop()));
    if (GetParam() != std::string("uring")) return;
    EXPECT_EQ(static_cast<UringRing&>(ring()).stale_completions(), 0u);
  }
  bool real() const { return GetParam() != std::string("sim"); }

  TestDirectory directory_;
  std::unique_ptr<RingUnderTest> under_test_;
  std::shared_ptr<File> file_;
};

TEST_P(RingTest, reads_what_it_wrote_at_every_size) {
  uint64_t offset = 0;
  for (const size_t bytes : {size_t{0}, kPage, kMiB, 5 * kMiB}) {
    for (const bool registered : {false, true}) {
      const Aligned wrote(bytes, bytes + 1);
      const Aligned read(bytes);
      if (registered && bytes > 0) {
        ASSERT_TRUE(ring().register_memory(wrote.span()).has_value());
        ASSERT_TRUE(ring().register_memory(read.span()).has_value());
      }
      ASSERT_TRUE(under_test_->write(file_, offset, wrote));
      ASSERT_TRUE(under_test_->wait(sync_file(ring(), file_)));
      ASSERT_TRUE(under_test_->read(file_, offset, read));
      EXPECT_TRUE(read == wrote) << bytes;
      offset += bytes + kPage;
    }
  }
  const RingStats stats = ring().stats();
  EXPECT_EQ(stats.reads, 6u);
  EXPECT_EQ(stats.writes, 6u);
  EXPECT_EQ(stats.syncs, 8u);
  EXPECT_EQ(stats.read_bytes, 2 * (kPage + 6 * kMiB));
  EXPECT_EQ(stats.written_bytes, 2 * (kPage + 6 * kMiB));
  EXPECT_EQ(stats.errors + stats.abandoned + stats.in_flight + stats.queued, 0u);
}

TEST_P(RingTest, a_reserved_file_is_as_long_as_asked_and_reads_as_zeros) {
  ASSERT_TRUE(file_->allocate(3 * kMiB));
  EXPECT_EQ(file_->size(), 3 * kMiB);
  const Aligned read(kMiB, 1);
  ASSERT_TRUE(under_test_->read(file_, 2 * kMiB, read));
  EXPECT_TRUE(read == Aligned(kMiB));
  ASSERT_TRUE(file_->allocate(kMiB));
  EXPECT_EQ(file_->size(), kMiB);
}

// case S6
TEST_P(RingTest, a_read_beyond_the_end_is_corrupt_and_says_where) {
  ASSERT_TRUE(file_->allocate(3 * kPage));
  const Aligned read(4 * kPage);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{2 * kPage}, uint64_t{8 * kPage}}) {
    const Result<> result = under_test_->read(file_, offset, read);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(result.error().message.find("the file ends"), std::string::npos);
  }
  EXPECT_EQ(ring().stats().errors, 3u);
}

TEST_P(RingTest, says_what_is_not_there) {
  const auto missing = ring().open(directory_ / "missing", {});
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("missing"), std::string::npos);
  EXPECT_FALSE(ring().rename(directory_ / "missing", directory_ / "b"));
}

TEST_P(RingTest, a_renamed_file_is_found_under_its_new_name_alone) {
  const Aligned wrote(kPage, 3);
  ASSERT_TRUE(under_test_->write(file_, 0, wrote));
  ASSERT_TRUE(ring().rename(directory_ / "a", directory_ / "b"));
  EXPECT_FALSE(ring().open(directory_ / "a", {}));
  const Aligned read(kPage);
  ASSERT_TRUE(under_test_->read(*ring().open(directory_ / "b", {}), 0, read));
  EXPECT_TRUE(read == wrote);
}

Task<> read_to(Ring* ring, Transfer what, StopFlag* stop, Result<>* result) {
  *result = co_await ring->read(std::move(what), *stop);
}

Task<> write_to(Ring* ring, Transfer what, StopFlag* stop, Result<>* result) {
  *result = co_await ring->write(std::move(what), *stop);
}

// More at once than any ring has entries, reads and writes mixed: each gets its own bytes.
TEST_P(RingTest, many_operations_at_once_each_move_their_own_bytes) {
  constexpr uint32_t kEach = 300;
  ASSERT_TRUE(file_->allocate(2 * kEach * kPage));
  std::vector<Aligned> memory;
  std::vector<Result<>> results(kEach);
  Scope scope(loop().executor());
  for (uint32_t i = 0; i < kEach; ++i) {
    memory.emplace_back(kPage, i);
    scope.spawn(
        write_to(&ring(), transfer(file_, i * kPage, memory[i]), &scope.stop(), &results[i]));
  }
  loop().run(scope.join());
  std::vector<Aligned> read;
  std::vector<Result<>> read_results(2 * kEach);
  for (uint32_t i = 0; i < kEach; ++i) {
    ASSERT_TRUE(results[i]);
    read.emplace_back(kPage);
    scope.spawn(
        read_to(&ring(), transfer(file_, i * kPage, read[i]), &scope.stop(), &read_results[i]));
    scope.spawn(write_to(&ring(), transfer(file_, (kEach + i) * kPage, memory[i]), &scope.stop(),
                         &read_results[kEach + i]));
  }
  loop().run(scope.join());
  for (uint32_t i = 0; i < kEach; ++i) {
    ASSERT_TRUE(read_results[i]);
    ASSERT_TRUE(read_results[kEach + i]);
    EXPECT_TRUE(read[i] == memory[i]);
  }
  EXPECT_EQ(ring().stats().in_flight, 0u);
}

// 64 reads of 1 MiB of what lies on the disk: enough that most are still under way.
class ManyReads {
 public:
  static constexpr uint32_t kCount = 64;

  ManyReads(RingUnderTest& of, const std::shared_ptr<File>& file) : of_(of), file_(file) {
    const Aligned bytes(kMiB, 6);
    for (uint32_t i = 0; i < kCount; ++i) CHECK(of.write(file, i * kMiB, bytes).has_value());
  }
  void spawn_into(Scope& scope, Clock::TimePoint deadline) {
    for (uint32_t i = 0; i < kCount; ++i) {
      const Aligned memory(kMiB);
      memory_.push_back(memory.watch());
      Transfer what = transfer(file_, i * kMiB, memory);
      what.deadline = deadline;
      scope.spawn(read_to(&of_.ring(), std::move(what), &scope.stop(), &results_[i]));
    }
  }
  uint32_t failed_with(ErrorCode code) const {
    uint32_t count = 0;
    for (const Result<>& result : results_) {
      if (result) continue;
      EXPECT_EQ(result.error().code, code) << result.error().message;
      ++count;
    }
    return count;
  }
  uint32_t alive() const {
    uint32_t count = 0;
    for (const auto& memory : memory_) count += memory.expired() ? 0 : 1;
    return count;
  }

 private:
  RingUnderTest& of_;
  std::shared_ptr<File> file_;
  std::vector<std::weak_ptr<void>> memory_;
  std::vector<Result<>> results_{kCount};
};

Task<> cancel_and_join(Scope* scope) {
  scope->cancel();
  co_await scope->join();
}

// cases K5, S7: the one who waited has its answer; the memory lives until the disk has ended.
TEST_P(RingTest, a_stop_answers_at_once_and_the_memory_lives_until_the_end) {
  ManyReads reads(*under_test_, file_);
  Scope scope(loop().executor());
  reads.spawn_into(scope, Clock::TimePoint::max());
  while (loop().run_one() && ring().stats().in_flight + ring().stats().queued < reads.kCount) {
  }
  loop().run(cancel_and_join(&scope));
  const uint32_t cancelled = reads.failed_with(ErrorCode::kCancelled);
  EXPECT_GT(cancelled, 0u);
  const RingStats after = ring().stats();
  EXPECT_EQ(reads.alive(), after.in_flight + after.queued);
  loop().run(ring().drain());
  EXPECT_EQ(reads.alive(), 0u);
  EXPECT_EQ(ring().stats().in_flight + ring().stats().queued, 0u);
  EXPECT_EQ(ring().stats().abandoned, cancelled);
  EXPECT_EQ(ring().stats().errors, 0u);
  expect_nothing_comes_late();
}

// case S11
TEST_P(RingTest, at_the_deadline_the_waiter_has_its_answer_and_the_memory_lives_on) {
  ManyReads reads(*under_test_, file_);
  Scope scope(loop().executor());
  reads.spawn_into(scope, loop().clock().now() + 300us);
  loop().run(scope.join());
  const uint32_t late = reads.failed_with(ErrorCode::kDeadlineExceeded);
  EXPECT_GT(late, 0u);
  EXPECT_EQ(loop().timers(), 0u);
  const RingStats after = ring().stats();
  EXPECT_EQ(reads.alive(), after.in_flight + after.queued);
  loop().run(ring().drain());
  EXPECT_EQ(reads.alive(), 0u);
  expect_nothing_comes_late();
}

TEST_P(RingTest, nothing_begins_once_the_flag_has_stopped) {
  under_test_->stop.stop();
  const Aligned memory(kPage);
  EXPECT_EQ(under_test_->read(file_, 0, memory).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(ring().stats().reads, 0u);
}

TEST_P(RingTest, a_deadline_that_has_passed_begins_nothing_and_one_far_off_changes_nothing) {
  ASSERT_TRUE(file_->allocate(kMiB));
  const Aligned memory(kMiB);
  Transfer late = transfer(file_, 0, memory);
  late.deadline = loop().clock().now();
  const Result<> result = under_test_->wait(ring().read(std::move(late), under_test_->stop));
  EXPECT_EQ(result.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(ring().stats().reads, 0u);
  Transfer early = transfer(file_, 0, memory);
  early.deadline = loop().clock().now() + 1h;
  EXPECT_TRUE(under_test_->wait(ring().read(std::move(early), under_test_->stop)));
  EXPECT_EQ(loop().timers(), 0u);
}

TEST_P(RingTest, drain_returns_at_once_when_nothing_is_in_flight) { loop().run(ring().drain()); }

// An operation keeps its file: closing it is letting go of it.
TEST_P(RingTest, a_file_let_go_of_in_mid_operation_is_still_read) {
  const Aligned wrote(kMiB, 4), read(kMiB);
  ASSERT_TRUE(under_test_->write(file_, 0, wrote));
  Transfer last = transfer(std::move(file_), 0, read);
  EXPECT_TRUE(under_test_->wait(ring().read(std::move(last), under_test_->stop)));
  EXPECT_TRUE(read == wrote);
}

TEST_P(RingTest, more_files_than_the_table_has_entries_work) {
  std::vector<std::shared_ptr<File>> files;
  const Aligned wrote(kPage, 5), read(kPage);
  for (uint32_t i = 0; i < 100; ++i) {
    files.push_back(under_test_->open(directory_ / ("f" + std::to_string(i))));
    ASSERT_TRUE(under_test_->write(files[i], 0, wrote));
  }
  for (const auto& file : files) ASSERT_TRUE(under_test_->read(file, 0, read));
  files.clear();
  ASSERT_TRUE(under_test_->read(under_test_->open(directory_ / "f99"), 0, read));
  EXPECT_TRUE(read == wrote);
}

TEST_P(RingTest, files_are_for_their_owner_alone) {
  if (!real()) GTEST_SKIP() << "of the file system";
  struct stat of{};
  ASSERT_EQ(stat((directory_ / "a").c_str(), &of), 0);
  EXPECT_EQ(of.st_mode & 0777, 0600u);
}

// case S6: a file whose end lies inside a sector.
TEST_P(RingTest, a_file_that_ends_inside_a_sector_is_corrupt) {
  if (!real()) GTEST_SKIP() << "of the file system";
  std::filesystem::resize_file(directory_ / "a", kPage + 100);
  const Aligned read(2 * kPage);
  const Result<> result = under_test_->read(file_, 0, read);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCorrupt) << result.error().message;
}

INSTANTIATE_TEST_SUITE_P(each, RingTest, testing::Values("uring", "threads", "sim"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace spillway::io
