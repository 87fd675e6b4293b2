// What may happen to a load while it waits.
#include <gtest/gtest.h>

#include "tiers_world.h"

namespace spillway::cache {
namespace {

// A load has room for what comes from each tier. While it waits for that room its host copies go,
// and more is to come from NVMe than there is room for, where groups' pages differ in size.
TEST(TiersLoad, a_host_copy_that_goes_while_a_load_waits_ends_the_load_and_nothing_else) {
  TiersWorld world({.cache = {.windows = {0, 40}, .capacity = {60, 60}, .layers = {1, 64}},
                    .host = {6, 3},
                    .nvme_bytes = 4u << 20,
                    .load_bytes_max = 1});
  ASSERT_GE(world.cache().page_bytes(1), 2 * world.cache().page_bytes(0));
  const std::vector<TokenId> prompt = prompt_of(3);
  world.ask(prompt);
  // Another's windows push those of the prompt out of host memory, its other pages stay.
  world.ask(prompt_of(3, 1));
  ASSERT_EQ(world.tiers().stats().host.evictions, 3u);
  TiersWorld::Asked other = world.begin(prompt_of(6, 2));
  world.compute(other);

  world.disk().faults.latency_min = world.disk().faults.latency_max = std::chrono::milliseconds(50);
  TiersWorld::Asked asked = world.begin(prompt);
  ASSERT_NE(asked.load, nullptr);
  const auto state = [&](uint32_t position) { return asked.load->at(position).state; };
  ASSERT_TRUE(world.run_until([&] { return world.disk().stats().in_flight > 0; }));
  EXPECT_EQ(state(2), Load::State::kMoving);
  EXPECT_EQ(state(1), Load::State::kPlanned);  // it waits for room
  const uint64_t evictions = world.tiers().stats().host.evictions;
  world.keep(other);
  ASSERT_TRUE(
      world.run_until([&] { return world.tiers().stats().host.evictions > evictions + 4; }));
  EXPECT_EQ(state(1), Load::State::kPlanned);
  world.bring_up(asked);
  EXPECT_TRUE(asked.load->at(1).failed);
  world.compute(asked);  // all of it
  EXPECT_EQ(asked.load->adopted[static_cast<size_t>(Tier::kNvme)], 0u);
  world.release(std::move(asked));
  world.release(std::move(other));
  world.settle();
  EXPECT_EQ(world.tiers().check_integrity(), "");
}

// Pages that have no place in the tree any more are their sequence's own (case K17).
TEST(TiersLoad, a_loaded_page_for_which_a_chain_of_equal_keys_has_no_place_is_private) {
  TiersWorld world(
      {.cache = {.windows = {0}, .capacity = {60}, .key_mode = KeyMode::kConstant}, .host = {20}});
  world.ask(prompt_of(2, 100));
  std::vector<TiersWorld::Asked> others;
  TiersWorld::Asked asked = world.begin(prompt_of(2, 100));
  ASSERT_NE(asked.load, nullptr);
  world.bring_up(asked);
  for (uint32_t i = 0; i < 8; ++i) {  // as many as a chain takes
    others.push_back(world.begin(prompt_of(2, i)));
    world.compute(others.back());
  }
  world.compute(asked);
  EXPECT_EQ(asked.load->adopted[static_cast<size_t>(Tier::kHost)], 2u);
  const GroupStats group = world.cache().cache().stats().groups[0];
  EXPECT_EQ(group.filling, 0u);
  EXPECT_EQ(group.writable, 8u + 3u);  // each one's last page, and the two that were loaded
  world.release(std::move(asked));
  for (TiersWorld::Asked& other : others) world.release(std::move(other));
  world.settle();
  world.forget();
  EXPECT_EQ(world.cache().cache().stats().groups[0].free, 60u);
}

// A record that was erased at opening had a number; a crash may bring it back, and then the number
// must name nobody else.
TEST(TiersLoad, numbers_of_pages_that_were_erased_at_opening_are_not_used_again) {
  TiersWorld world({});
  world.ask(prompt_of(6));
  world.lose(prompt_of(6), 0);  // the other five, numbers 2 to 6, are erased at the next opening
  world.restart();
  EXPECT_EQ(world.stored(), 0u);
  world.ask(prompt_of(2, 1));
  std::set<uint64_t> numbers;
  world.store().for_each([&](const io::StoredPage& page) { numbers.insert(page.name.uid); });
  EXPECT_EQ(numbers, (std::set<uint64_t>{7, 8}));
}

// The store has room for the front of a path. Its end does not take the place of what leads to it.
TEST(TiersLoad, a_path_longer_than_the_store_keeps_its_front_and_evicts_nothing_of_itself) {
  TiersWorld world({.cache = {.windows = {0}, .capacity = {60}}, .nvme_bytes = 112u << 10});
  world.ask(prompt_of(50));
  world.ask(prompt_of(50));
  const uint64_t slots = world.tiers().stats().nvme.capacity_bytes / world.cache().page_bytes(0);
  ASSERT_LT(slots, 50u);
  EXPECT_EQ(world.stored(), slots);
  const uint64_t evictions = world.tiers().stats().nvme.evictions;
  EXPECT_EQ(world.ask(prompt_of(50)), slots);
  EXPECT_EQ(world.stored(), slots);
  EXPECT_EQ(world.tiers().stats().nvme.evictions, evictions);
}

// Loads by bands, with room for about a page in flight, on a disk that takes its time.
struct BandsWorld : TiersWorld {
  BandsWorld()
      : TiersWorld({.cache = {.windows = {0}, .capacity = {100}, .layers = {256}},
                    .nvme_bytes = 8u << 20,
                    .load_bytes_max = 1,
                    .bands = BandLoads::kAlways,
                    .band_bytes_min = 4096}) {
    for (const auto& prompt : {long_one, short_one}) ask(prompt);
    disk().faults.latency_min = disk().faults.latency_max = std::chrono::milliseconds(1);
  }
  const std::vector<TokenId> long_one = prompt_of(40), short_one = prompt_of(3, 1);
};

// Else whoever loads little would wait until each page of the long one had its next band.
TEST(TiersLoad, a_short_load_takes_turns_with_a_long_one_that_comes_by_bands) {
  BandsWorld world;
  TiersWorld::Asked long_one = world.begin(world.long_one);
  ASSERT_TRUE(long_one.load != nullptr && long_one.load->by_bands);
  ASSERT_GT(long_one.load->bands, 3u);
  TiersWorld::Asked short_one = world.begin(world.short_one);
  ASSERT_TRUE(short_one.load != nullptr && short_one.load->by_bands);
  world.bring_up(short_one);
  EXPECT_LE(long_one.load->layers_there(0), 2 * 256 / long_one.load->bands);
  world.bring_up(long_one);
  for (TiersWorld::Asked* asked : {&short_one, &long_one}) {
    world.compute(*asked);
    world.release(std::move(*asked));
  }
  world.settle();
  EXPECT_EQ(world.tiers().check_integrity(), "");
}

// Pages that wait for their next band are written by nobody.
TEST(TiersLoad, what_a_load_by_bands_gives_up_is_free_but_for_what_is_being_read) {
  BandsWorld world;
  TiersWorld::Asked asked = world.begin(world.long_one);
  ASSERT_TRUE(asked.load != nullptr && asked.load->by_bands);
  ASSERT_TRUE(world.run_until([&] { return asked.load->layers_there(0) > 0; }));
  EXPECT_GE(world.cache().cache().stats().groups[0].filling, 40u);
  world.tiers().give_up(asked.load);
  const GroupStats group = world.cache().cache().stats().groups[0];
  EXPECT_LE(group.orphaned, asked.load->bands);  // pieces of one page's size are in flight
  EXPECT_EQ(group.filling, 0u);
  world.compute(asked);
  world.release(std::move(asked));
  world.settle();
  EXPECT_EQ(world.cache().cache().stats().groups[0].orphaned, 0u);
}

// By bands all pages come at the end. What a slow disk is thought to give after a pause is hope,
// and such a load does not begin on it.
TEST(TiersLoad, bands_begin_at_a_rate_that_was_measured_and_not_at_one_that_is_hoped_for) {
  for (const double bytes_per_s : {20e6, 500e6}) {
    TiersWorld world({.cache = {.windows = {0}, .capacity = {100}, .layers = {256}},
                      .nvme_bytes = 8u << 20,
                      .band_bytes_min = 4096});
    world.ask(prompt_of(40));
    world.disk().faults.bytes_per_s = bytes_per_s;
    ASSERT_GT(world.ask(prompt_of(40)), 0u);  // tells the rate
    for (const auto pause : {std::chrono::seconds(0), std::chrono::seconds(15)}) {
      world.pass(pause);
      for (int i = 0; i < 50; ++i) world.tiers().compute_rate().measured(640, 512, 0.01);
      TiersWorld::Asked asked = world.begin(prompt_of(80));
      ASSERT_NE(asked.load, nullptr);
      EXPECT_EQ(asked.load->by_bands, bytes_per_s > 100e6)
          << bytes_per_s << " bytes/s, after " << pause.count() << " s";
      world.bring_up(asked);
      world.compute(asked);
      world.release(std::move(asked));
      world.forget();
    }
  }
}

}  // namespace
}  // namespace spillway::cache
