// The store on a disk that does not answer: nobody waits for ever, and what may still land harms
// nothing.
#include <gtest/gtest.h>

#include "tests/io/store_fixture.h"

namespace spillway::io {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kBytes = 200 * kSectorBytes;

// A process with page 1 in its store, which puts page 2; the disk stops answering after so many
// steps.
struct Dying {
  Dying(sim::SimFiles& files, uint64_t steps) : process(files) {
    EXPECT_TRUE(process.open(store_options(kBytes)).has_value());
    EXPECT_TRUE(process.put(kept).has_value());
    process.scope.spawn(store_result(
        process.store->put(dying.name(), dying.payload(), dying.bytes.owner(), process.stop),
        &answer));
    const uint64_t end = process.disk_steps + steps;
    while (process.disk_steps < end && !answer) process.step();
    process.disk.faults.stall = 1;
    process.disk.faults.stall_time = 1h;
  }
  void close() {
    process.stop.stop();  // who closes a store waits for nothing of it any more
    process.scope.spawn(process.store->close());
    process.run_all();
  }
  TestPage kept{1}, dying{2};
  std::optional<Result<StoredPage>> answer;
  SimProcess process;
};

// cases S10, S11
TEST(store_dead_disk, closing_goes_on_with_what_is_durable) {
  for (uint64_t steps = 0; steps < 6; ++steps) {
    SCOPED_TRACE(steps);
    sim::SimFiles files;
    {
      Dying at(files, steps);
      const auto began = at.process.clock.now();
      at.close();
      EXPECT_LT(at.process.clock.now() - began, 4s);
      EXPECT_TRUE(at.answer.has_value());
      at.process.settle();
      EXPECT_TRUE(at.process.store->drained());
      at.process.store.reset();
    }
    SimProcess next(files, 5);
    ASSERT_TRUE(next.open(store_options(kBytes)).has_value());
    const auto visible = next.visible();
    ASSERT_TRUE(visible.contains(1));
    EXPECT_TRUE(next.serves(visible.at(1), TestPage(1)));
    if (visible.contains(2)) EXPECT_TRUE(next.serves(visible.at(2), TestPage(2)));
  }
}

// case S7
TEST(store_dead_disk, what_it_was_asked_for_keeps_its_buffer) {
  sim::SimFiles files;
  Dying at(files, 0);
  at.process.run_until([&] { return at.process.disk.stats().in_flight > 0; });
  at.close();
  EXPECT_FALSE(at.process.store->drained());
  const std::weak_ptr<void> buffer = at.dying.bytes.watch();
  at.dying.bytes = Aligned(kSectorBytes);
  EXPECT_FALSE(buffer.expired());
  at.process.settle();
  EXPECT_TRUE(buffer.expired());
  at.process.store.reset();
}

// cases S9 to S11
TEST(store_dead_disk, until_a_late_flush_or_write_of_the_index_has_ended_nothing_is_written) {
  uint64_t late_at[3] = {};
  for (uint64_t steps = 0; steps < 6; ++steps) {
    SCOPED_TRACE(steps);
    sim::SimFiles files;
    Dying at(files, steps);
    SimProcess& process = at.process;
    const auto began = process.clock.now();
    process.run_until([&] { return at.answer.has_value(); });
    EXPECT_LE(process.clock.now() - began, 11s);
    if (at.answer->has_value()) continue;
    ++late_at[0];
    EXPECT_EQ(at.answer->error().code, ErrorCode::kDeadlineExceeded);
    EXPECT_GT(process.store->stats().deadlines, 0u);
    process.disk.faults.stall = 0;
    if (!process.store->stats().read_only) continue;  // it was the page's own write
    ++late_at[1];
    const RingStats before = process.disk.stats();
    for (int i = 0; i < 3; ++i) {
      process.clock.advance(31s);
      EXPECT_FALSE(process.put(TestPage(3)).has_value());
    }
    EXPECT_EQ(process.disk.stats().writes, before.writes);
    EXPECT_EQ(process.disk.stats().in_flight, before.in_flight);
    process.settle();  // an hour later
    process.clock.advance(31s);
    const auto again = process.put(TestPage(4));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_FALSE(process.store->stats().read_only);
    ++late_at[2];
    process.close();
    ASSERT_TRUE(process.open(store_options(kBytes)).has_value());
    const auto visible = process.visible();
    EXPECT_EQ(visible.size(), 2u);
    EXPECT_TRUE(process.serves(visible.at(1), TestPage(1)));
    EXPECT_TRUE(process.serves(visible.at(4), TestPage(4)));
  }
  EXPECT_GE(late_at[0], 4u);
  EXPECT_GE(late_at[1], 3u);
  EXPECT_GE(late_at[2], 3u);
}

}  // namespace
}  // namespace spillway::io
