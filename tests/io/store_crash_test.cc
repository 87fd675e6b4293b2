// The store cut off at every step of its disk: what it holds after that is what it had published,
// with the right bytes, in exactly the room it says.
#include <gtest/gtest.h>

#include <set>

#include "tests/io/store_fixture.h"

namespace spillway::io {
namespace {

// What the process before knew: which pages must be there after a crash, and which may.
struct Knowledge {
  std::set<uint64_t> published;  // and never asked to be erased
  std::set<uint64_t> possible;   // being put, or being erased
};

Task<> put_noting(SimProcess& process, uint64_t number, uint32_t bytes, Knowledge& known) {
  const TestPage page(number, bytes);
  known.possible.insert(number);
  const auto stored =
      co_await process.store->put(page.name(), page.payload(), page.bytes.owner(), process.stop);
  if (stored && !process.disk.crashed()) {
    known.possible.erase(number);
    known.published.insert(number);
  }
}

uint32_t bytes_of(uint64_t number) {
  return (number % 3 == 0 ? 1 : number % 3 == 1 ? 2 : 5) * kSectorBytes;
}

// Rounds of concurrent puts and erases in a store so small that slots are reused and the journal
// fills its region again and again.
Task<> workload(SimProcess& process, uint64_t seed, Knowledge& known) {
  Prng random(seed);
  uint64_t next = seed * 1000;
  for (int round = 0; round < 8 && !process.disk.crashed(); ++round) {
    Scope puts(process.loop.executor());
    for (uint64_t i = random.below(5); i-- > 0;) {
      const uint64_t number = next++;
      puts.spawn(put_noting(process, number, bytes_of(number), known));
    }
    std::vector<StoredPage> pages;
    process.store->for_each([&](const StoredPage& page) { pages.push_back(page); });
    for (const StoredPage& page : pages) {
      if (pages.size() < 6 ? random.below(4) != 0 : random.below(2) != 0) continue;
      known.published.erase(page.name.key[0] - 1);
      known.possible.insert(page.name.key[0] - 1);
      process.store->erase(page.slot, page.generation);
    }
    co_await puts.join();
    if (process.disk.faults.failed_sync > 0) process.clock.advance(std::chrono::seconds(16));
  }
}

BlockStoreOptions small_store() {
  return store_options(46 * kSectorBytes, {1 * kSectorBytes, 2 * kSectorBytes, 5 * kSectorBytes});
}

void check_after_crash(sim::SimFiles& files, uint64_t seed, const Knowledge& known) {
  SimProcess process(files, seed + 7);
  ASSERT_TRUE(process.open(small_store()).has_value());
  EXPECT_EQ(process.store->check_integrity(), "");
  const auto visible = process.visible();
  for (const uint64_t number : known.published) EXPECT_TRUE(visible.contains(number)) << number;
  uint64_t used = 0;
  for (const auto& [number, stored] : visible) {
    EXPECT_TRUE(known.published.contains(number) || known.possible.contains(number)) << number;
    const TestPage page(number, bytes_of(number));
    EXPECT_EQ(stored.name.space, page.space);
    EXPECT_TRUE(process.serves(stored, page)) << number;
    used += stored.stored_bytes;
  }
  const BlockStoreStats stats = process.store->stats();
  EXPECT_EQ(stats.used_bytes, used);
  EXPECT_EQ(stats.pages, visible.size());
  EXPECT_EQ(stats.corrupt, 0u);
  EXPECT_FALSE(stats.read_only);
  EXPECT_LE(files.used_bytes(), small_store().bytes);
  EXPECT_EQ(files.all().size(), 1u);  // nothing was set aside
  // And it goes on working.
  const TestPage more(999'999, 5 * kSectorBytes);
  for (const auto& [number, stored] : visible) process.store->erase(stored.slot, stored.generation);
  const auto put = process.put(more);
  ASSERT_TRUE(put.has_value()) << put.error().message;
  EXPECT_TRUE(process.serves(*put, more));
}

// Steps until the crash; false when the workload ended before.
bool run_until_crash(sim::SimFiles& files, uint64_t seed, uint64_t crash_at, sim::Crash kind,
                     Knowledge& known, double failed_sync = 0) {
  SimProcess process(files, seed);
  process.crash_at = crash_at;
  process.crash_kind = kind;
  process.disk.faults.latency_max = std::chrono::microseconds(100);
  if (process.open(small_store()).has_value()) {
    process.disk.faults.failed_sync = failed_sync;
    process.scope.spawn(workload(process, seed, known));
    process.run_all();
    if (!process.disk.crashed()) EXPECT_EQ(process.store->check_integrity(), "");
  }
  return process.disk.crashed();
}

void crash_everywhere(sim::Crash kind, uint64_t seeds, double failed_sync = 0) {
  uint64_t crashes = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    bool crashed = true;
    // Every step for the first seeds, then every seventh with a start that differs.
    const uint64_t stride = seed < 5 ? 1 : 7;
    for (uint64_t step = 1 + (stride > 1 ? seed % stride : 0); crashed; step += stride) {
      sim::SimFiles files;
      Knowledge known;
      crashed = run_until_crash(files, seed, step, kind, known, failed_sync);
      check_after_crash(files, seed, known);
      ++crashes;
      if (testing::Test::HasFailure()) {
        FAIL() << "seed " << seed << ", crash after disk step " << step;
      }
    }
  }
  std::printf("%llu crashes\n", static_cast<unsigned long long>(crashes));
}

// case S5
TEST(store_crash, a_power_cut_at_any_step_leaves_what_was_published) {
  crash_everywhere(sim::Crash::kPower, 1000);
}

TEST(store_crash, a_kill_at_any_step_leaves_what_was_published) {
  crash_everywhere(sim::Crash::kProcess, 300);
}

// case S10
TEST(store_crash, a_power_cut_at_any_step_among_failing_flushes_leaves_what_was_published) {
  crash_everywhere(sim::Crash::kPower, 600, 0.15);
}

// Restarts that are cut off too: killed at any step, cut off at any step of the next opening.
TEST(store_crash, a_crash_while_opening_loses_nothing) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto first = seed % 4 == 3 ? sim::Crash::kPower : sim::Crash::kProcess;
    bool crashed = true;
    for (uint64_t at = 1; crashed; ++at) {
      for (uint64_t step = 1; step < 10; ++step) {
        sim::SimFiles files;
        Knowledge known;
        crashed = run_until_crash(files, seed, at, first, known);
        {
          SimProcess process(files, seed + step * 31);
          process.crash_at = step;
          (void)process.open(small_store());
        }
        check_after_crash(files, seed, known);
        ASSERT_FALSE(HasFailure()) << "seed " << seed << ", crash after disk step " << at
                                   << ", and after step " << step << " of opening";
      }
    }
  }
}

}  // namespace
}  // namespace spillway::io
