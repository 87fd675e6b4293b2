// What is written, kept and evicted along a path in the store, so that a restart finds all of it.
#include <gtest/gtest.h>

#include "tiers_world.h"

namespace spillway::cache {
namespace {

constexpr uint32_t kPage = TestCache::kPageTokens;

// A window of which a page is missing is of no use to anybody.
TEST(TiersChain, a_window_of_more_pages_than_there_are_buffers_goes_down_whole) {
  constexpr uint32_t kPages = 12;
  for (const bool in_host : {false, true}) {
    for (const size_t buffers : {1, 2, 5}) {
      TiersShape shape{.cache = {.windows = {0, 8 * kPage + 1}, .capacity = {60, 60}},
                       .staging_pages = buffers};
      if (in_host) {
        shape.host = {40, 40};
        shape.host_codec = kernels::PageCodec::kPlanes;
        shape.nvme_bytes = 0;
      }
      TiersWorld world(shape);
      ASSERT_EQ(world.ask(prompt_of(kPages)), 0u);
      if (!in_host) world.restart();
      EXPECT_EQ(world.ask(prompt_of(kPages)), kPages) << buffers << " buffers, host " << in_host;
      const TiersStats stats = world.tiers().stats();
      EXPECT_EQ(stats.host.skipped + stats.nvme.skipped, 0u);
    }
  }
}

// case K18
TEST(TiersChain, nothing_is_written_after_a_lost_page_until_it_is_back) {
  TiersWorld world({});
  ASSERT_EQ(world.ask(prompt_of(8)), 0u);
  ASSERT_EQ(world.records(prompt_of(8)), all_but(8));
  world.lose(prompt_of(8), 2);
  world.disk().faults.reorder = false;  // the page that was lost is the first to be written again
  TiersWorld::Asked asked = world.begin(prompt_of(12));
  ASSERT_NE(asked.load, nullptr);
  world.bring_up(asked);
  world.compute(asked);
  EXPECT_EQ(asked.load->adopted[static_cast<size_t>(Tier::kNvme)], 7u);  // what is after it, too
  world.disk().faults.write_error = 1;
  world.keep(asked);
  ASSERT_TRUE(world.run_until([&] { return world.tiers().stats().nvme.errors == 2; }));
  world.disk().faults.write_error = 0;
  world.settle();
  EXPECT_EQ(world.records(prompt_of(12)), all_but(8, {2}));
  // The path's next use writes what is missing, and all is found again.
  world.keep(asked);
  world.release(std::move(asked));
  world.settle();
  EXPECT_EQ(world.records(prompt_of(12)), all_but(12));
  world.restart();
  EXPECT_EQ(world.stored(), 12u);
  EXPECT_EQ(world.ask(prompt_of(12)), 12u);
}

// After a restart a page counts no uses; what is stored after it is reason enough.
TEST(TiersChain, a_lost_page_is_written_again_for_what_is_stored_after_it) {
  TiersWorld world({.write = WritePolicy::kReuse});
  world.ask(prompt_of(8));
  world.ask(prompt_of(8));
  world.restart();
  world.lose(prompt_of(8), 3);
  EXPECT_EQ(world.ask(prompt_of(8)), 7u);
  EXPECT_EQ(world.records(prompt_of(8)), all_but(8));
  world.restart();
  EXPECT_EQ(world.stored(), 8u);
}

// A page that must go because one before it could not be written, while somebody reads it.
TEST(TiersChain, what_could_not_follow_a_failed_page_goes_when_nobody_reads_it) {
  uint64_t read = 0, lost = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    TiersWorld world({}, seed);
    TiersWorld::Asked asked = world.begin(prompt_of(8));
    world.compute(asked);
    world.disk().faults.latency_max = std::chrono::milliseconds(20);
    world.keep(asked, true);
    world.release(std::move(asked));
    // The first page that is stored is read at once, while others of its batch are written.
    world.run_until([&] { return world.stored() > 0; });
    world.forget();
    world.disk().faults.latency_min = world.disk().faults.latency_max;
    TiersWorld::Asked again = world.begin(prompt_of(8));
    read += again.load != nullptr;
    world.disk().faults.write_error = 1;
    world.run_until([&] { return world.tiers().stats().nvme.errors > 0; });
    world.disk().faults.write_error = 0;
    world.bring_up(again);
    world.release(std::move(again));
    world.settle();
    lost += world.tiers().stats().nvme.skipped > world.tiers().stats().nvme.errors;
    const uint64_t stored = world.stored();
    world.restart();  // what a store without a good index has erased comes back
    EXPECT_GE(world.stored(), stored) << seed;
  }
  EXPECT_GT(read, 30u);
  EXPECT_GT(lost, 10u);
}

// Gemma: a page of a window is found only beside its own page of full attention.
TEST(TiersChain, a_page_stays_while_the_page_of_its_window_is_read) {
  uint64_t chances = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    TiersWorld world(
        {.cache = {.windows = {0, 24}, .capacity = {60, 60}}, .nvme_bytes = 112u << 10}, seed);
    world.ask(prompt_of(4));
    const TiersWorld::Records before = world.records(prompt_of(4));
    ASSERT_TRUE(before.contains({3, 1}));
    // Another path that will take all the room there is waits on the device.
    TiersWorld::Asked other = world.begin(prompt_of(40, 1));
    world.compute(other);
    world.disk().faults.latency_max = std::chrono::milliseconds(50);
    TiersWorld::Asked reader = world.begin(prompt_of(4));
    ASSERT_NE(reader.load, nullptr);
    const Load::Slot& last = reader.load->slots.back();
    world.run_until([&] { return last.state == Load::State::kMoving && last.moving == 1; });
    world.keep(other, true);
    const auto window_is_alone = [&] {
      const TiersWorld::Records now = world.records(prompt_of(4));
      return std::any_of(now.begin(), now.end(), [&](const auto& page) {
        return page.second == 1 && !now.contains({page.first, 0});
      });
    };
    world.run_until([&] {
      const auto& slots = reader.load->slots;
      return window_is_alone() || std::all_of(slots.begin(), slots.end(), [](const auto& slot) {
               return slot.state == Load::State::kAbsent || slot.state == Load::State::kReady;
             });
    });
    bool alone = window_is_alone();
    world.release(std::move(reader));
    alone = alone || world.run_until(window_is_alone);
    EXPECT_FALSE(alone) << "a window's page is alone: seed " << seed;
    const TierStats nvme = world.tiers().stats().nvme;
    chances += nvme.skipped > 0;  // it did look for room
    world.release(std::move(other));
    world.settle();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(chances, 20u);
}

}  // namespace
}  // namespace spillway::cache
