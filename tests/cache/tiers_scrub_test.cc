// Stored pages that are read while nobody wants anything, and what becomes of those that do not
// verify.
#include <gtest/gtest.h>

#include <chrono>

#include "tiers_world.h"

namespace spillway::cache {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kPage = TestCache::kPageTokens;

uint32_t matched_pages(TiersWorld& world, const std::vector<TokenId>& prompt) {
  return world.tiers().match_length(world.cache().keys(prompt), prompt, 0) / kPage;
}

uint64_t reads(TiersWorld& world) { return world.disk().stats().reads; }
void set_latency(TiersWorld& world, std::chrono::nanoseconds latency) {
  world.disk().faults.latency_min = world.disk().faults.latency_max = latency;
}

// case S1
TEST(TiersScrub, a_page_that_has_rotted_is_gone_before_anybody_asks_for_it) {
  TiersWorld world({.scrub_pause = 1s});
  world.ask(prompt_of(8));
  world.rot(prompt_of(8), 7);
  ASSERT_EQ(matched_pages(world, prompt_of(8)), 8u);
  world.pass(9s);
  EXPECT_EQ(matched_pages(world, prompt_of(8)), 7u);
  EXPECT_EQ(world.records(prompt_of(8)), all_but(8, {7}));
  const TiersStats stats = world.tiers().stats();
  EXPECT_EQ(stats.scrubbed_pages, 8u);
  EXPECT_EQ(stats.scrub_dropped_pages, 1u);
  EXPECT_EQ(stats.nvme.corrupt, 1u);
  EXPECT_EQ(stats.nvme.pages, 7u);
  EXPECT_EQ(stats.directory_nodes, 7u);
  // Who asks now finds nothing wrong, and what is missing is written again.
  EXPECT_EQ(world.ask(prompt_of(8)), 7u);
  EXPECT_EQ(world.tiers().stats().nvme.errors, stats.nvme.errors);
  EXPECT_EQ(world.records(prompt_of(8)), all_but(8));
}

// case K18
TEST(TiersScrub, what_comes_after_a_rotten_page_is_as_when_a_load_finds_it) {
  for (const bool restarts : {false, true}) {
    for (const bool scrubs : {true, false}) {
      TiersWorld world({.scrub_pause = scrubs ? 1s : 0s});
      world.ask(prompt_of(8));
      world.rot(prompt_of(8), 3);
      if (scrubs) {
        world.pass(9s);
      } else {
        TiersWorld::Asked asked = world.begin(prompt_of(8));
        world.bring_up(asked);
        world.release(std::move(asked));
        world.settle();
        world.forget();
      }
      EXPECT_EQ(world.tiers().stats().nvme.corrupt, 1u);
      EXPECT_EQ(world.records(prompt_of(8)), all_but(8, {3}));
      if (restarts) world.restart();
      EXPECT_EQ(world.stored(), restarts ? 3u : 7u);
      EXPECT_EQ(world.ask(prompt_of(8)), restarts ? 3u : 7u);
      EXPECT_EQ(world.records(prompt_of(8)), all_but(8));
      world.restart();
      EXPECT_EQ(world.stored(), 8u);
    }
  }
}

TEST(TiersScrub, nothing_is_scrubbed_while_the_engine_works) {
  TiersWorld world({.scrub_pause = 10ms});
  bool is_idle = false;
  world.tiers().set_is_idle([&] { return is_idle; });
  world.ask(prompt_of(8));
  world.pass(1s);
  EXPECT_EQ(reads(world), 0u);
  is_idle = true;
  world.pass(1s);
  EXPECT_EQ(reads(world), 8u);
}

TEST(TiersScrub, nothing_is_scrubbed_while_a_load_runs) {
  TiersWorld world({.scrub_pause = 10ms});
  bool is_idle = false;
  world.tiers().set_is_idle([&] { return is_idle; });
  world.ask(prompt_of(8));
  set_latency(world, 500ms);
  TiersWorld::Asked asked = world.begin(prompt_of(4));
  ASSERT_NE(asked.load, nullptr);
  is_idle = true;  // as the engine is while pages come up that nobody has asked for
  world.pass(400ms);
  EXPECT_EQ(world.disk().stats().in_flight, 4u);
  world.bring_up(asked);
  EXPECT_EQ(reads(world), 4u);
  world.compute(asked);
  world.release(std::move(asked));
  world.pass(1s);
  EXPECT_EQ(world.disk().stats().in_flight + reads(world), 5u);
}

TEST(TiersScrub, nothing_is_scrubbed_while_a_path_is_written) {
  TiersWorld world({.scrub_pause = 10ms});
  bool is_idle = false;
  world.tiers().set_is_idle([&] { return is_idle; });
  world.ask(prompt_of(8));
  TiersWorld::Asked asked = world.begin(prompt_of(8, 1));
  world.compute(asked);
  set_latency(world, 500ms);
  world.keep(asked);
  world.release(std::move(asked));
  is_idle = true;
  ASSERT_TRUE(world.run_until([&] { return world.stored() == 16; }));
  EXPECT_EQ(world.disk().stats().in_flight + reads(world), 0u);
  world.pass(1s);
  EXPECT_GT(world.disk().stats().in_flight + reads(world), 0u);
}

// case S6
TEST(TiersScrub, a_disk_that_is_set_aside_is_left_alone) {
  TiersWorld world({.scrub_pause = 10ms});
  world.ask(prompt_of(20));
  const uint64_t before = reads(world);
  world.disk().faults.read_error = 1;
  world.pass(1s);
  // What scrubbing finds is reason enough.
  EXPECT_TRUE(world.tiers().stats().nvme.set_aside);
  EXPECT_EQ(world.disk().stats().errors, Breaker::kFailuresMax);
  EXPECT_EQ(world.stored(), 20u);
  world.pass(60s);  // probes
  EXPECT_LT(world.disk().stats().errors, Breaker::kFailuresMax + 8u);
  world.disk().faults.read_error = 0;
  world.pass(61s);
  EXPECT_FALSE(world.tiers().stats().nvme.set_aside);
  EXPECT_GT(reads(world), before + 16);
  EXPECT_EQ(world.stored(), world.store().stats().pages);
}

TEST(TiersScrub, a_slow_disk_is_busy_with_it_for_a_tenth_of_the_time) {
  TiersWorld world({.scrub_pause = 1ms});
  world.ask(prompt_of(20));
  world.pass(10ms);
  const uint64_t before = reads(world);
  EXPECT_GT(before, 5u);
  set_latency(world, 500ms);
  world.pass(50s);
  EXPECT_LE(reads(world) - before, 11u);
  EXPECT_GE(reads(world) - before, 9u);
}

TEST(TiersScrub, after_a_round_it_rests) {
  TiersWorld world({.scrub_pause = 1s, .scrub_rest = 1h});
  world.ask(prompt_of(8));
  world.pass(10s);
  EXPECT_EQ(reads(world), 8u);
  world.pass(59min);
  EXPECT_EQ(reads(world), 8u);
  world.pass(2min);
  EXPECT_EQ(reads(world), 16u);
}

TEST(TiersScrub, closing_does_not_wait_for_a_page_that_is_being_read_and_loses_nothing) {
  TiersWorld world({.scrub_pause = 1s});
  world.ask(prompt_of(8));
  set_latency(world, 1500ms);
  ASSERT_TRUE(world.run_until([&] { return world.disk().stats().in_flight == 1; }));
  const Clock::TimePoint began = world.clock().now();
  world.close_tiers();
  EXPECT_EQ(world.clock().now(), began);
  EXPECT_EQ(world.disk().stats().in_flight, 1u);
  world.restart();
  EXPECT_EQ(world.stored(), 8u);
  EXPECT_EQ(world.ask(prompt_of(8)), 8u);
}

// Pages of another model are nobody's here, but whoever comes back for them finds no rotten one.
TEST(TiersScrub, pages_of_other_models_are_scrubbed_too) {
  TiersWorld world({.scrub_pause = 1s});
  world.ask(prompt_of(8));
  world.rot(prompt_of(8), 7);
  world.restart("another model");
  ASSERT_EQ(world.tiers().stats().other_pages, 8u);
  world.pass(9s);
  EXPECT_EQ(world.tiers().stats().scrub_dropped_pages, 1u);
  EXPECT_EQ(world.tiers().stats().other_pages, 7u);
  world.restart();
  EXPECT_EQ(world.stored(), 7u);
}

// The page may be on its way to the device just now, and who wanted it may go away.
TEST(TiersScrub, a_page_that_a_load_reads_at_the_same_time_is_gone_once) {
  uint64_t by_scrub = 0, by_load = 0, given_up = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    TiersWorld world({.scrub_pause = 1s}, seed);
    world.ask(prompt_of(8));
    world.disk().faults.latency_max = 20ms;
    world.rot(prompt_of(8), world.first_by_slot(prompt_of(8)));
    ASSERT_TRUE(world.run_until([&] { return world.disk().stats().in_flight == 1; }));
    TiersWorld::Asked asked = world.begin(prompt_of(8));
    ASSERT_NE(asked.load, nullptr);
    if (seed % 2 == 0) {
      ASSERT_TRUE(world.run_until([&] { return world.store().stats().corrupt == 1; }));
      given_up += world.disk().stats().in_flight > 1;
    } else {
      world.bring_up(asked);
      world.compute(asked);
    }
    world.release(std::move(asked));
    world.pass(500ms);
    const TiersStats stats = world.tiers().stats();
    EXPECT_EQ(stats.store.corrupt, 1u);
    EXPECT_EQ(world.stored(), 7u) << seed;
    EXPECT_EQ(stats.store.pages, 7u);
    EXPECT_EQ(world.tiers().check_integrity(), "");
    by_scrub += stats.scrub_dropped_pages;
    by_load += stats.scrub_dropped_pages == 0;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(by_scrub, 10u);
  EXPECT_GT(by_load, 10u);
  EXPECT_GT(given_up, 10u);
}

}  // namespace
}  // namespace spillway::cache
