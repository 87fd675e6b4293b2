// The simulated disk keeps its word: each fault shows as it says, the same seed gives the same
// events, and without faults nothing is lost.
#include "tests/sim/sim_disk.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/scope.h"
#include "tests/io/aligned.h"

namespace spillway::sim {
namespace {

using namespace std::chrono_literals;
using io::Aligned;
using io::transfer;

constexpr size_t kPage = 4096;

// A process on the machine: its loop and its disk.
struct Process {
  explicit Process(SimFiles& files, uint64_t seed = 1) : disk(loop, files, seed) {
    parker.disk = &disk;
  }
  std::shared_ptr<io::File> open(const std::string& path) {
    return *disk.open(path, {.create = true, .lock = false});
  }
  Result<> write(const std::shared_ptr<io::File>& file, uint64_t offset, const Aligned& bytes) {
    return wait([&] { return disk.write(transfer(file, offset, bytes), stop); });
  }
  Result<> read(const std::shared_ptr<io::File>& file, uint64_t offset, const Aligned& bytes) {
    return wait([&] { return disk.read(transfer(file, offset, bytes), stop); });
  }
  Result<> sync(const std::shared_ptr<io::File>& file) {
    return wait([&] { return sync_file(disk, file); });
  }
  static Task<> store(Task<Result<>> task, Result<>* to) { *to = co_await std::move(task); }
  Result<> wait(const std::function<Task<Result<>>()>& start) {
    Result<> result;
    loop.run(store(start(), &result));
    return result;
  }

  SimulatedClock clock;
  SimDiskParker parker{clock};
  EngineLoop loop{clock, parker};
  SimDisk disk;
  StopFlag stop;
};

TEST(sim_disk, what_was_written_is_read_and_survives_the_process) {
  SimFiles files;
  const Aligned wrote(3 * kPage, 7);
  {
    Process process(files);
    const auto file = process.open("a");
    ASSERT_TRUE(process.write(file, kPage, wrote));
    ASSERT_TRUE(process.sync(file));
    EXPECT_EQ(file->size(), 4 * kPage);
  }
  Process process(files);
  const Aligned read(3 * kPage);
  ASSERT_TRUE(process.read(process.open("a"), kPage, read));
  EXPECT_TRUE(read == wrote);
}

TEST(sim_disk, a_power_cut_keeps_what_was_flushed_and_tears_the_rest_at_512_bytes) {
  uint32_t torn = 0, whole = 0, gone = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SimFiles files;
    const Aligned flushed(kPage, 1), old(kPage, 2), later(kPage, 3);
    {
      Process process(files, seed);
      const auto file = process.open("a");
      ASSERT_TRUE(process.write(file, 0, flushed));
      ASSERT_TRUE(process.write(file, kPage, old));
      ASSERT_TRUE(process.sync(file));
      ASSERT_TRUE(process.write(file, kPage, later));
      process.disk.crash(Crash::kPower);
      EXPECT_FALSE(process.read(file, 0, Aligned(kPage)));
      EXPECT_FALSE(process.disk.open("a", {}));
    }
    Process process(files, seed);
    const auto file = process.open("a");
    const Aligned read(kPage);
    ASSERT_TRUE(process.read(file, 0, read));
    EXPECT_TRUE(read == flushed);
    ASSERT_TRUE(process.read(file, kPage, read));
    uint32_t sectors = 0;
    for (size_t at = 0; at < kPage; at += kTearBytes) {
      const bool is_new = std::memcmp(&read[at], &later[at], kTearBytes) == 0;
      sectors += is_new ? 1 : 0;
      ASSERT_TRUE(is_new || std::memcmp(&read[at], &old[at], kTearBytes) == 0);
    }
    ++(sectors == 0 ? gone : sectors == 8 ? whole : torn);
  }
  EXPECT_GT(torn, 0u);
  EXPECT_GT(whole, 0u);
  EXPECT_GT(gone, 0u);
}

TEST(sim_disk, killing_the_process_loses_nothing_that_has_returned) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SimFiles files;
    const Aligned wrote(2 * kPage, 5);
    {
      Process process(files, seed);
      ASSERT_TRUE(process.write(process.open("a"), 0, wrote));
      process.disk.crash(Crash::kProcess);
    }
    Process process(files, seed);
    const Aligned read(2 * kPage);
    ASSERT_TRUE(process.read(process.open("a"), 0, read));
    EXPECT_TRUE(read == wrote);
  }
}

Task<> write_and_forget(SimDisk* disk, io::Transfer what, StopFlag* stop, Result<>* result) {
  *result = co_await disk->write(std::move(what), *stop);
}

TEST(sim_disk, a_write_in_flight_at_the_crash_ends_with_an_error_and_lands_in_part_or_not) {
  std::vector<uint32_t> landed(9);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimFiles files;
    const Aligned bytes(kPage, 9);
    {
      Process process(files, seed);
      process.disk.faults.latency_min = process.disk.faults.latency_max = 1ms;
      const auto file = process.open("a");
      ASSERT_TRUE(file->allocate(kPage));
      Result<> result;
      Scope scope(process.loop.executor());
      scope.spawn(
          write_and_forget(&process.disk, transfer(file, 0, bytes), &process.stop, &result));
      while (process.loop.run_one()) {
      }
      process.disk.crash(Crash::kProcess);
      while (process.loop.run_one()) {
      }
      EXPECT_EQ(scope.running(), 0u);
      EXPECT_EQ(result.error().code, ErrorCode::kIo);
    }
    Process process(files);
    const Aligned read(kPage);
    ASSERT_TRUE(process.read(process.open("a"), 0, read));
    uint32_t sectors = 0;
    for (size_t at = 0; at < kPage; at += kTearBytes) {
      sectors += std::memcmp(&read[at], &bytes[at], kTearBytes) == 0 ? 1 : 0;
    }
    ++landed[sectors];
  }
  EXPECT_GT(landed[0], 0u);
  EXPECT_GT(landed[8], 0u);
  EXPECT_GT(landed[3], 0u);
}

TEST(sim_disk, each_fault_shows_as_it_says) {
  SimFiles files;
  Process process(files, 3);
  SimDiskFaults& faults = process.disk.faults;
  const auto file = process.open("a");
  ASSERT_TRUE(file->allocate(64 * kPage));
  const Aligned old(4 * kPage, 1), bytes(4 * kPage, 2), read(4 * kPage);
  const auto reset = [&] {
    faults = {};
    ASSERT_TRUE(process.write(file, 0, old));
  };
  const auto stored = [&]() -> const Aligned& {
    faults = {};
    EXPECT_TRUE(process.read(file, 0, read));
    return read;
  };
  reset();
  faults.lost_write = 1;
  EXPECT_TRUE(process.write(file, 0, bytes));
  EXPECT_TRUE(stored() == old);

  for (size_t sectors = 0; sectors <= 32; ++sectors) {  // a tear at every 512 bytes
    reset();
    faults.tear_next_write_after = sectors * kTearBytes;
    EXPECT_TRUE(process.write(file, 0, bytes));
    stored();
    for (size_t at = 0; at < 4 * kPage; at += kTearBytes) {
      const Aligned& there = at < sectors * kTearBytes ? bytes : old;
      EXPECT_EQ(std::memcmp(&read[at], &there[at], kTearBytes), 0);
    }
  }
  reset();
  faults.misdirected_write = 1;
  EXPECT_TRUE(process.write(file, 0, bytes));
  EXPECT_TRUE(stored() == old);  // with this seed elsewhere

  reset();
  faults.bit_rot = 1;
  EXPECT_TRUE(process.read(file, 0, read));
  uint32_t bits = 0;
  stored();
  for (size_t i = 0; i < 4 * kPage; ++i) {
    bits += static_cast<uint32_t>(__builtin_popcount(static_cast<uint8_t>(read[i] ^ old[i])));
  }
  EXPECT_EQ(bits, 1u);  // and for good

  reset();
  faults.read_error = 1;
  EXPECT_EQ(process.read(file, 0, read).error().code, ErrorCode::kIo);
  faults.read_error = 0;
  faults.short_read = 1;
  EXPECT_EQ(process.read(file, 0, read).error().code, ErrorCode::kCorrupt);
  faults.write_error = 1;
  EXPECT_EQ(process.write(file, 0, bytes).error().code, ErrorCode::kIo);
  faults.no_space = 1;
  EXPECT_EQ(process.write(file, 0, bytes).error().code, ErrorCode::kResourceExhausted);
  faults.no_space_to_allocate = true;
  EXPECT_EQ(file->allocate(kPage).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(process.disk.stats().errors, 4u);
}

// case S10
TEST(sim_disk, a_failed_flush_loses_what_a_later_one_reports_as_safe) {
  uint32_t lost = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SimFiles files;
    const Aligned bytes(kPage, 4), read(kPage);
    {
      Process process(files, seed);
      const auto file = process.open("a");
      ASSERT_TRUE(process.write(file, 0, bytes));
      process.disk.faults.failed_sync = 1;
      EXPECT_EQ(process.sync(file).error().code, ErrorCode::kIo);
      process.disk.faults = {};
      EXPECT_TRUE(process.sync(file));
      ASSERT_TRUE(process.read(file, 0, read));
      EXPECT_TRUE(read == bytes);  // the cache still has it
      process.disk.crash(Crash::kPower);
    }
    Process process(files);
    ASSERT_TRUE(process.read(process.open("a"), 0, read));
    lost += read == bytes ? 0 : 1;
  }
  EXPECT_GT(lost, 10u);
}

TEST(sim_disk, the_disk_is_as_fast_as_it_says) {
  SimFiles files;
  Process process(files);
  process.disk.faults.bytes_per_s = 1e9;
  process.disk.faults.latency_min = process.disk.faults.latency_max = 100us;
  const auto file = process.open("a");
  const Aligned bytes(1'000'000 / kPage * kPage, 1);
  ASSERT_TRUE(process.write(file, 0, bytes));
  const auto took = process.clock.now().time_since_epoch();
  EXPECT_NEAR(static_cast<double>(took.count()), 1.1e6, 1e4);
}

// case S11
TEST(sim_disk, a_stalled_read_answers_at_its_deadline_and_keeps_its_memory_until_it_ends) {
  SimFiles files;
  Process process(files);
  const auto file = process.open("a");
  ASSERT_TRUE(file->allocate(kPage));
  process.disk.faults.stall = 1;
  std::weak_ptr<void> memory;
  {
    const Aligned read(kPage);
    memory = read.watch();
    io::Transfer slow = transfer(file, 0, read);
    slow.deadline = process.clock.now() + 2s;
    const Result<> result =
        process.wait([&] { return process.disk.read(std::move(slow), process.stop); });
    EXPECT_EQ(result.error().code, ErrorCode::kDeadlineExceeded);
  }
  EXPECT_EQ(process.clock.now().time_since_epoch(), 2s);
  EXPECT_FALSE(memory.expired());
  process.loop.run(process.disk.drain());
  EXPECT_EQ(process.clock.now().time_since_epoch(), 10s);
  EXPECT_TRUE(memory.expired());
  EXPECT_EQ(process.disk.stats().abandoned, 1u);
}

// case S12
TEST(sim_disk, a_lock_names_its_owner_and_ends_with_it) {
  SimFiles files;
  Process second(files);
  {
    Process first(files);
    const auto file = first.disk.open("a", {.create = true, .lock = true});
    ASSERT_TRUE(file);
    const auto refused = second.disk.open("a", {.create = true, .lock = true});
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(refused.error().message.find("process 101"), std::string::npos);
    first.disk.crash(Crash::kProcess);
  }
  EXPECT_TRUE(second.disk.open("a", {.create = true, .lock = true}));
}

Task<> note_end(SimDisk* disk, io::Transfer what, StopFlag* stop, uint32_t id,
                std::vector<uint32_t>* order) {
  co_await disk->read(std::move(what), *stop);
  order->push_back(id);
}

std::vector<uint32_t> order_of_ends(uint64_t seed, bool reorder) {
  SimFiles files;
  Process process(files, seed);
  process.disk.faults.reorder = reorder;
  process.disk.faults.latency_max = 1ms;
  const auto file = process.open("a");
  const auto allocated = file->allocate(100 * kPage);
  EXPECT_TRUE(allocated);
  std::vector<uint32_t> order;
  Scope scope(process.loop.executor());
  for (uint32_t i = 0; i < 100; ++i) {
    const Aligned read(kPage);
    scope.spawn(note_end(&process.disk, transfer(file, i * kPage, read), &process.stop, i, &order));
  }
  process.loop.run(scope.join());
  return order;
}

TEST(sim_disk, the_seed_alone_decides_the_order) {
  EXPECT_EQ(order_of_ends(1, true), order_of_ends(1, true));
  EXPECT_NE(order_of_ends(1, true), order_of_ends(2, true));
  std::vector<uint32_t> in_order(100);
  for (uint32_t i = 0; i < 100; ++i) in_order[i] = i;
  EXPECT_EQ(order_of_ends(1, false), in_order);
}

}  // namespace
}  // namespace spillway::sim
