// What only a real ring can show: locks between processes, refused system calls, memory limits,
// file systems without O_DIRECT, and the edges of io_uring's own queues.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/io/ring_under_test.h"
#include "tests/sim/refuse_io_uring.h"

namespace spillway::io {
namespace {

using namespace std::chrono_literals;

constexpr size_t kPage = kSectorBytes;
constexpr size_t kMiB = size_t{1} << 20;

class RealRingTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    under_test_ = make_ring_under_test(GetParam());
    if (under_test_ == nullptr) GTEST_SKIP() << "io_uring is refused here";
  }
  Ring& ring() { return under_test_->ring(); }

  TestDirectory directory_;
  std::unique_ptr<RingUnderTest> under_test_;
};

// A process that opens `path` with the lock, by a ring of this kind, and writes without end.
pid_t spawn_owner(const std::string& kind, const std::string& path, int ready) {
  const pid_t child = fork();
  if (child != 0) return child;
  const auto owner = make_ring_under_test(kind);
  const auto file = owner->ring().open(path, {.create = true, .lock = true});
  const Aligned bytes(kMiB, 1);
  const bool opened = file.has_value() && owner->write(*file, 0, bytes).has_value();
  const char answer = opened ? 'y' : 'n';
  if (write(ready, &answer, 1) != 1) std::_Exit(1);
  for (;;) (void)owner->write(*file, 0, bytes);
}

// case S12
TEST_P(RealRingTest, a_second_process_is_refused_with_the_owners_pid_and_after_a_kill_it_opens) {
  const std::string path = directory_ / "locked";
  for (int round = 0; round < 3; ++round) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    under_test_.reset();  // its threads: ThreadSanitizer takes no fork beside them
    const pid_t owner = spawn_owner(GetParam(), path, ready[1]);
    under_test_ = make_ring_under_test(GetParam());
    char answer = 0;
    ASSERT_EQ(read(ready[0], &answer, 1), 1);
    ASSERT_EQ(answer, 'y');
    const auto refused = ring().open(path, {.create = true, .lock = true});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(refused.error().message.find("process " + std::to_string(owner)), std::string::npos)
        << refused.error().message;
    EXPECT_TRUE(ring().open(path, {}));  // without the lock: to look at it
    kill(owner, SIGKILL);
    // Not waited for: the next start of a server comes as soon as this.
    const auto opened = ring().open(path, {.create = true, .lock = true});
    EXPECT_TRUE(opened) << opened.error().message;
    ASSERT_EQ(waitpid(owner, nullptr, 0), owner);
    close(ready[0]);
    close(ready[1]);
  }
}

TEST_P(RealRingTest, a_lock_ends_with_its_file) {
  const std::string path = directory_ / "locked";
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(ring().open(path, {.create = true, .lock = true}));
  }
}

TEST_P(RealRingTest, asks_the_disk_for_more_than_it_has_and_is_told_so) {
  struct statvfs disk{};
  ASSERT_EQ(statvfs(directory_.path().c_str(), &disk), 0);
  const auto file = under_test_->open(directory_ / "a");
  const uint64_t too_much = (uint64_t{disk.f_bavail} * disk.f_frsize / kMiB + 1024) * kMiB;
  const Result<> result = file->allocate(too_much);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kResourceExhausted) << result.error().message;
  EXPECT_EQ(file->size(), 0u);
}

TEST_P(RealRingTest, a_file_system_in_memory_is_used_buffered) {
  struct statfs of{};
  const bool is_memory = statfs("/dev/shm", &of) == 0 && of.f_type == 0x01021994;
  if (!is_memory) GTEST_SKIP() << "/dev/shm is no tmpfs here";
  const std::string path = "/dev/shm/spillway_ring_test." + std::to_string(getpid());
  const auto file = under_test_->open(path);
  EXPECT_FALSE(file->direct());
  const Aligned wrote(kMiB, 3), read(kMiB);
  EXPECT_TRUE(file->allocate(2 * kMiB));
  EXPECT_TRUE(under_test_->write(file, kPage, wrote));
  EXPECT_TRUE(under_test_->wait(sync_file(ring(), file)));
  EXPECT_TRUE(under_test_->read(file, kPage, read));
  EXPECT_TRUE(read == wrote);
  unlink(path.c_str());
}

TEST_P(RealRingTest, a_disk_is_used_directly) {
  struct statfs of{};
  ASSERT_EQ(statfs(directory_.path().c_str(), &of), 0);
  if (of.f_type != 0xEF53 && of.f_type != 0x58465342) GTEST_SKIP() << "neither ext4 nor XFS";
  EXPECT_TRUE(under_test_->open(directory_ / "a")->direct());
}

Task<> read_to(Ring* ring, Transfer what, StopFlag* stop, Result<>* result) {
  *result = co_await ring->read(std::move(what), *stop);
}

struct Yield {
  void start(Resumer resumer) { resumer.resume(); }
};

// Never parks: there is always something to run until all reads have ended, or far too long.
Task<> stay_busy(const Scope* reads, uint64_t* turns) {
  while (reads->running() > 0 && *turns < 1'000'000'000) {
    ++*turns;
    Yield turn;
    co_await suspend(turn);
  }
}

TEST_P(RealRingTest, a_loop_that_never_parks_has_its_completions_too) {
  const auto file = under_test_->open(directory_ / "a");
  const Aligned wrote(4 * kMiB, 1), read(4 * kMiB);
  ASSERT_TRUE(under_test_->write(file, 0, wrote));
  Result<> result = cancelled_error();
  Scope scope(under_test_->loop().executor());
  scope.spawn(read_to(&ring(), transfer(file, 0, read), &under_test_->stop, &result));
  uint64_t turns = 0;
  under_test_->loop().run(stay_busy(&scope, &turns));
  EXPECT_TRUE(result);
  EXPECT_TRUE(read == wrote);
  EXPECT_LT(turns, 1'000'000'000u);
}

INSTANTIATE_TEST_SUITE_P(both, RealRingTest, testing::Values("uring", "threads"),
                         [](const auto& info) { return std::string(info.param); });

TEST(make_ring, says_which_ring_it_is_and_why) {
  RealRing threads(make_parker(IoUring::kNever));
  EXPECT_EQ(threads.ring().description(),
            "4 threads with pread and pwrite (io_uring is switched off)");
  RealRing best(make_parker());
  if (best.chosen().uring == nullptr) GTEST_SKIP() << "io_uring is refused here";
  EXPECT_EQ(best.ring().description(), "io_uring");
}

// case S15: the ring too, not only the parker (parker_test.cc).
[[noreturn]] void store_without(const std::vector<uint32_t>& calls, int error_number) {
  CHECK(sim::refuse_calls(calls, static_cast<uint32_t>(error_number)));
  const TestDirectory directory;
  RealRing ring(make_parker());
  CHECK(ring.chosen().uring == nullptr);
  const auto file = ring.open(directory / "a");
  const Aligned wrote(kMiB, 3), read(kMiB);
  CHECK(ring.write(file, 0, wrote).has_value());
  CHECK(ring.wait(sync_file(ring.ring(), file)).has_value());
  CHECK(ring.read(file, 0, read).has_value());
  CHECK(read == wrote);
  std::fprintf(stderr, "%s", ring.ring().description().c_str());
  std::filesystem::remove_all(directory.path());
  std::_Exit(0);
}

TEST(RingDeathTest, a_refused_io_uring_falls_back_to_threads_and_says_why) {
  EXPECT_EXIT(store_without(sim::kIoUringCalls, EPERM), testing::ExitedWithCode(0),
              "threads with pread and pwrite .io_uring_setup was refused: Operation not permitted");
  EXPECT_EXIT(store_without({SYS_io_uring_enter}, ENOSYS), testing::ExitedWithCode(0),
              "threads with pread and pwrite .io_uring_enter was refused: Function not");
}

// Whoever may lock any amount of memory gives that right up: the limit then holds for root too.
void obey_memory_limit(rlim_t bytes) {
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct rights[2]{};
  CHECK(syscall(SYS_capget, &header, rights) == 0);
  for (auto* set : {&rights[0].effective, &rights[0].permitted, &rights[0].inheritable}) {
    *set &= ~(1u << CAP_IPC_LOCK);
  }
  CHECK(syscall(SYS_capset, &header, rights) == 0);
}

// case S16
[[noreturn]] void store_with_little_locked_memory() {
  obey_memory_limit(64 << 10);
  const TestDirectory directory;
  RealRing ring(make_parker());
  CHECK(ring.chosen().uring != nullptr);
  const Aligned wrote(4 * kMiB, 3), read(4 * kMiB);
  const Result<> registered = ring.ring().register_memory(wrote.span());
  CHECK(!registered.has_value());
  const auto file = ring.open(directory / "a");
  CHECK(ring.write(file, 0, wrote).has_value());
  CHECK(ring.read(file, 0, read).has_value());
  CHECK(read == wrote);
  std::fprintf(stderr, "%s", ring.ring().description().c_str());
  std::filesystem::remove_all(directory.path());
  std::_Exit(0);
}

TEST(RingDeathTest, too_little_lockable_memory_gives_plain_transfers_and_says_so) {
  if (make_parker().uring == nullptr) GTEST_SKIP() << "io_uring is refused here";
  EXPECT_EXIT(store_with_little_locked_memory(), testing::ExitedWithCode(0),
              "io_uring .plain transfers for 4 MiB: only 64 KiB of memory may be locked");
}

class UringRingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (make_parker().uring == nullptr) GTEST_SKIP() << "io_uring is refused here";
  }
  static ChosenParker parker_with(uint32_t entries) {
    auto made = UringParker::create({.entries = entries});
    CHECK(made.has_value());
    UringParker* uring = made->get();
    return {std::move(*made), "", uring};
  }
  static UringRing& uring(RealRing& ring) { return static_cast<UringRing&>(ring.ring()); }
  TestDirectory directory_;
};

TEST_F(UringRingTest, transfers_inside_registered_memory_are_fixed_and_others_are_not) {
  RealRing ring(make_parker());
  const auto file = ring.open(directory_ / "a");
  const Aligned pool(kMiB, 1), other(kMiB);
  ASSERT_TRUE(ring.ring().register_memory(pool.span().first(kMiB / 2)));
  Transfer inside = transfer(file, 0, pool);
  inside.memory = pool.span().first(kMiB / 2);
  ASSERT_TRUE(ring.wait(ring.ring().write(inside, ring.stop)));
  inside.memory = pool.span().subspan(kMiB / 4, kMiB / 4);
  ASSERT_TRUE(ring.wait(ring.ring().read(inside, ring.stop)));
  EXPECT_EQ(uring(ring).fixed_transfers(), 2u);
  inside.memory = pool.span().subspan(kMiB / 4, kMiB / 2);  // half in, half out
  ASSERT_TRUE(ring.wait(ring.ring().write(inside, ring.stop)));
  inside.memory = other.span().first(kMiB / 2);
  ASSERT_TRUE(ring.wait(ring.ring().read(inside, ring.stop)));
  EXPECT_EQ(std::memcmp(&other[0], &pool[kMiB / 4], kMiB / 2), 0);
  EXPECT_EQ(uring(ring).fixed_transfers(), 2u);
}

// A place in the kernel's table is used again, and memory at a forgotten address is other memory.
TEST_F(UringRingTest, memory_that_was_forgotten_is_none_of_the_registered) {
  ChosenParker chosen = make_parker();
  RealRing ring(std::move(chosen), {.ranges_max = 2});
  const auto file = ring.open(directory_ / "a");
  const Aligned kept(kMiB, 1), pool(kMiB, 2), read(kMiB);
  ASSERT_TRUE(ring.ring().register_memory(kept.span()));
  for (uint64_t round = 0; round < 5; ++round) {
    for (const size_t half : {0, 1}) {  // more pieces than there are places: the second is refused
      const Result<> done =
          ring.ring().register_memory(pool.span().subspan(half * kMiB / 2, kMiB / 2));
      EXPECT_EQ(done.has_value(), half == 0);
    }
    Transfer half = transfer(file, 0, pool);
    half.memory = pool.span().first(kMiB / 2);
    ASSERT_TRUE(ring.wait(ring.ring().write(half, ring.stop)));
    EXPECT_EQ(uring(ring).fixed_transfers(), 2 * round + 1);
    ring.ring().forget_memory(pool.span());
    ASSERT_TRUE(ring.wait(ring.ring().write(half, ring.stop)));
    ASSERT_TRUE(ring.write(file, 0, kept));
    EXPECT_EQ(uring(ring).fixed_transfers(), 2 * round + 2);
    EXPECT_EQ(uring(ring).registered_bytes(), kMiB);
  }
  ASSERT_TRUE(ring.read(file, 0, read));
  EXPECT_TRUE(read == kept);
}

// A submission queue of 4 and room for 8 completions under 200 operations: what does not fit waits,
// and nothing is lost.
TEST_F(UringRingTest, full_queues_lose_nothing) {
  RealRing ring(parker_with(4), {.entries = 100, .files_max = 4, .ranges_max = 4});
  const auto file = ring.open(directory_ / "a");
  const Aligned wrote(200 * kPage, 1);
  ASSERT_TRUE(ring.write(file, 0, wrote));
  std::vector<Aligned> memory;
  std::vector<Result<>> results(200);
  Scope scope(ring.loop().executor());
  for (uint32_t i = 0; i < 200; ++i) {
    memory.emplace_back(kPage);
    scope.spawn(
        read_to(&ring.ring(), transfer(file, i * kPage, memory[i]), &ring.stop, &results[i]));
  }
  ring.loop().run(scope.join());
  for (uint32_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(results[i]) << results[i].error().message;
    EXPECT_EQ(std::memcmp(&memory[i][0], &wrote[i * kPage], kPage), 0);
  }
  EXPECT_EQ(uring(ring).stale_completions(), 0u);
}

// case S7: a completion of an operation that is gone is counted and touches nothing, not even the
// one that has its slot now: these say that it moved 0 bytes.
TEST_F(UringRingTest, a_stale_completion_is_ignored) {
  RealRing ring(make_parker());
  const auto file = ring.open(directory_ / "a");
  const Aligned wrote(kPage, 1), read(kPage);
  ASSERT_TRUE(ring.write(file, 0, wrote));
  Result<> result = cancelled_error();
  Scope scope(ring.loop().executor());
  scope.spawn(read_to(&ring.ring(), transfer(file, 0, read), &ring.stop, &result));
  while (ring.loop().run_one()) {  // it has begun, and goes into the kernel behind these
  }
  ASSERT_EQ(ring.ring().stats().queued, 1u);
  const uint64_t slot_in_use = uint64_t{7} << 32 | 4;
  const uint64_t slot_free = 5 << 3 | 4;
  const uint64_t slot_unknown = 0xFFFFFF4;
  for (const uint64_t user_data : {slot_in_use, slot_free, slot_unknown}) {
    io_uring_sqe* entry = ring.chosen().uring->entry();
    ASSERT_NE(entry, nullptr);
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data64(entry, user_data);
  }
  ring.loop().run(scope.join());
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(read == wrote);
  EXPECT_EQ(uring(ring).stale_completions(), 3u);
}

// cases S7, S11, K5: a read that the kernel has and does not end, of a pipe that nobody writes to.
// The waiter has its answer at the deadline; the kernel is asked to give it up, and when it has,
// the memory is let go.
TEST_F(UringRingTest, a_read_that_hangs_is_given_up_at_its_deadline) {
  const std::string path = directory_ / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  RealRing ring(make_parker());
  const auto file = ring.open(path);
  std::weak_ptr<void> watched;
  {
    const Aligned memory(kPage);
    watched = memory.watch();
    Transfer hanging = transfer(file, 0, memory);
    hanging.deadline = ring.loop().clock().now() + 20ms;
    const Result<> result = ring.wait(ring.ring().read(std::move(hanging), ring.stop));
    EXPECT_EQ(result.error().code, ErrorCode::kDeadlineExceeded);
  }
  ring.loop().run(ring.ring().drain());
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(ring.ring().stats().abandoned, 1u);
  EXPECT_EQ(ring.ring().stats().errors, 0u);
}

}  // namespace
}  // namespace spillway::io
