// The store of a real process that is really killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "tests/io/ring_under_test.h"
#include "tests/io/store_fixture.h"

namespace spillway::io {
namespace {

constexpr uint64_t kBytes = 400 * kSectorBytes;

BlockStoreOptions options_in(const TestDirectory& directory) {
  auto options = store_options(kBytes, {2 * kSectorBytes});
  options.directory = directory.path();
  options.seed.reset();
  return options;
}

template <class T>
T run_on(RingUnderTest& on, Task<T> task) {
  std::optional<T> result;
  on.loop().run(store_result(std::move(task), &result));
  return std::move(*result);
}

// What a child tells: +number when a page is stored, -number - 1 before it is erased.
void say(int pipe, int64_t what) {
  if (write(pipe, &what, sizeof what) != sizeof what) _exit(3);
}

Task<> put_and_say(BlockStore& store, uint64_t number, int pipe, StopFlag& stop) {
  const TestPage page(number);
  const auto stored = co_await store.put(page.name(), page.payload(), page.bytes.owner(), stop);
  if (stored) say(pipe, static_cast<int64_t>(number));
}

Task<> put_for_ever(BlockStore& store, EngineLoop& loop, uint64_t from, int pipe) {
  StopFlag stop;
  for (uint64_t number = from;; number += 8) {
    Scope puts(loop.executor());
    for (uint64_t i = 0; i < 8; ++i) puts.spawn(put_and_say(store, number + i, pipe, stop));
    co_await puts.join();
    std::vector<StoredPage> old;
    store.for_each([&](const StoredPage& page) { old.push_back(page); });
    for (size_t i = 0; i + 40 < old.size(); ++i) {
      say(pipe, -static_cast<int64_t>(old[i].name.key[0] - 1) - 1);
      store.erase(old[i].slot, old[i].generation);
    }
  }
}

[[noreturn]] void be_the_child(const std::string& kind, const TestDirectory& directory,
                               uint64_t from, int pipe) {
  auto on = make_ring_under_test(kind);
  auto opened = run_on(*on, BlockStore::open(options_in(directory), on->loop(), on->ring()));
  if (!opened) _exit(2);
  say(pipe, INT64_MIN);  // it is open
  on->loop().run(put_for_ever(**opened, on->loop(), from, pipe));
  _exit(0);
}

class StoreProcess : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (make_ring_under_test(GetParam()) == nullptr) GTEST_SKIP() << "io_uring is refused here";
  }
  // The child's pid; `pipe` is where it is heard.
  pid_t start_child(uint64_t from, int& pipe) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      be_the_child(GetParam(), directory_, from, ends[1]);
    }
    close(ends[1]);
    pipe = ends[0];
    int64_t word = 0;
    EXPECT_EQ(read(pipe, &word, sizeof word), static_cast<ssize_t>(sizeof word));
    EXPECT_EQ(word, INT64_MIN);
    return child;
  }
  void kill_child(pid_t child) {
    kill(child, SIGKILL);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
  }
  TestDirectory directory_;
};

// case S12
TEST_P(StoreProcess, another_process_is_refused_with_the_owners_pid_until_it_is_killed) {
  int pipe = -1;
  const pid_t child = start_child(0, pipe);
  auto on = make_ring_under_test(GetParam());
  auto refused = run_on(*on, BlockStore::open(options_in(directory_), on->loop(), on->ring()));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(refused.error().message.find(std::to_string(child)), std::string::npos)
      << refused.error().message;
  kill_child(child);
  close(pipe);
  auto opened = run_on(*on, BlockStore::open(options_in(directory_), on->loop(), on->ring()));
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  on->loop().run((*opened)->close());
}

// case S5
TEST_P(StoreProcess, after_a_kill_all_that_was_stored_is_there_and_the_room_is_exact) {
  std::set<uint64_t> stored, perhaps;
  for (uint64_t round = 0; round < 12; ++round) {
    int pipe = -1;
    const pid_t child = start_child(round * 100'000, pipe);
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + random_at(7, 0, round) % 60));
    kill_child(child);
    int64_t word = 0;
    while (read(pipe, &word, sizeof word) == sizeof word) {
      const auto number = static_cast<uint64_t>(word >= 0 ? word : -(word + 1));
      (word >= 0 ? stored : perhaps).insert(number);
      if (word < 0) stored.erase(number);
    }
    close(pipe);
    auto on = make_ring_under_test(GetParam());
    auto opened = run_on(*on, BlockStore::open(options_in(directory_), on->loop(), on->ring()));
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    BlockStore& store = **opened;
    EXPECT_EQ(store.check_integrity(), "");
    std::map<uint64_t, StoredPage> found;
    store.for_each([&](const StoredPage& page) { found.emplace(page.name.key[0] - 1, page); });
    for (const uint64_t number : stored) EXPECT_TRUE(found.contains(number)) << number;
    StopFlag stop;
    for (const auto& [number, page] : found) {
      const TestPage expected(number);
      const Aligned read(page.stored_bytes);
      const auto got =
          run_on(*on, store.get(page.slot, page.generation, read.span(), read.owner(), stop));
      EXPECT_TRUE(got.has_value() && read == expected.bytes) << number;
      stored.insert(number);
    }
    EXPECT_EQ(store.stats().used_bytes, found.size() * 2 * kSectorBytes);
    EXPECT_EQ(store.stats().corrupt, 0u);
    EXPECT_LE(store.stats().file_bytes, kBytes);
    on->loop().run(store.close());
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GT(stored.size() + perhaps.size(), 12u);
}

INSTANTIATE_TEST_SUITE_P(each, StoreProcess, testing::Values("threads", "uring"),
                         [](const auto& kind) { return std::string(kind.param); });

// Not a bound of the test: prints what opening costs (goal: 1 s per 100,000 pages).
TEST(store_open, opens_many_pages_by_reading_the_index_alone) {
  const TestDirectory directory;
  auto on = make_ring_under_test("uring");
  if (on == nullptr) on = make_ring_under_test("threads");
  auto options = store_options(uint64_t{120} << 20, {kSectorBytes});
  options.directory = directory.path();
  auto opened = run_on(*on, BlockStore::open(options, on->loop(), on->ring()));
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  constexpr uint64_t kPages = 20'000;
  ASSERT_GE((*opened)->free_slots(kSectorBytes), kPages);
  StopFlag stop;
  const auto put_all = [](BlockStore& store, EngineLoop& loop, uint64_t count,
                          StopFlag& by) -> Task<> {
    for (uint64_t first = 0; first < count; first += 2000) {
      Scope puts(loop.executor());
      const auto put = [](BlockStore& into, uint64_t number, StopFlag& flag) -> Task<> {
        const TestPage page(number, kSectorBytes);
        const auto done = co_await into.put(page.name(), page.payload(), page.bytes.owner(), flag);
        EXPECT_TRUE(done.has_value());
      };
      for (uint64_t i = first; i < std::min(first + 2000, count); ++i) {
        puts.spawn(put(store, i, by));
      }
      co_await puts.join();
    }
  };
  auto begun = std::chrono::steady_clock::now();
  on->loop().run(put_all(**opened, on->loop(), kPages, stop));
  const auto since = [&begun] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun)
        .count();
  };
  std::printf("%llu pages of 4 KiB put in %.0f ms\n", static_cast<unsigned long long>(kPages),
              since());
  on->loop().run((*opened)->close());
  opened->reset();
  const uint64_t read_bytes = on->ring().stats().read_bytes;
  begun = std::chrono::steady_clock::now();
  opened = run_on(*on, BlockStore::open(options, on->loop(), on->ring()));
  std::printf("opened in %.0f ms: %.0f ms per 100,000 pages\n", since(),
              since() * 100'000 / kPages);
  EXPECT_LT(on->ring().stats().read_bytes - read_bytes, kPages * kSectorBytes / 4);
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ((*opened)->stats().pages, kPages);
  on->loop().run((*opened)->close());
}

}  // namespace
}  // namespace spillway::io
