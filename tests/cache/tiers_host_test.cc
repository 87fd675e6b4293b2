// Pages that lie encoded in host memory: what they take, what happens when something ends, is reset
// or is given up at any point of their way there and back, and when their bytes are not those that
// were put there.
#include <gtest/gtest.h>

#include "tiers_world.h"

namespace spillway::cache {
namespace {

using kernels::PageCodec;

constexpr size_t kPageBytes = 16 << 10;     // in 128 layers
constexpr size_t kEncodedBytes = 12 << 10;  // in whole sectors

TiersShape shape_of(uint32_t host_pages, uint64_t nvme_bytes = 0) {
  return {.cache = {.windows = {0}, .capacity = {60}, .layers = {128}},
          .host = {host_pages},
          .nvme_bytes = nvme_bytes,
          .host_codec = PageCodec::kPlanes,
          .codec_pages = 3};
}

// A prompt's path, on its way down.
void compute_and_keep(TiersWorld& world, const std::vector<TokenId>& prompt) {
  TiersWorld::Asked asked = world.begin(prompt);
  world.bring_up(asked);
  world.compute(asked);
  world.keep(asked);
  world.release(std::move(asked));
}

// False: nothing is left to happen.
bool go_on(TiersWorld& world, uint32_t events) {
  for (uint32_t i = 0; i < events; ++i) {
    if (!world.machine().go_on()) return false;
  }
  return true;
}

TEST(TiersHost, encoded_pages_take_what_they_need_and_leave_room_for_more) {
  for (const PageCodec codec : {PageCodec::kIdentity, PageCodec::kPlanes}) {
    TiersShape shape = shape_of(9);
    shape.host_codec = codec;
    TiersWorld world(shape);
    ASSERT_EQ(world.cache().page_bytes(0), kPageBytes);
    world.ask(prompt_of(30));
    const TierStats host = world.tiers().stats().host;
    EXPECT_EQ(host.capacity_bytes, 9 * kPageBytes);
    const bool encoded = codec == PageCodec::kPlanes;
    EXPECT_EQ(host.pages, encoded ? 12u : 9u);
    EXPECT_EQ(host.used_bytes, host.pages * (encoded ? kEncodedBytes : kPageBytes));
    EXPECT_EQ(world.tiers().stats().host_codec.encoded, encoded ? 30u : 0u);
  }
}

TEST(TiersHost, encoded_pages_come_back_the_same_and_count_as_host) {
  TiersWorld world(shape_of(20));
  const std::vector<TokenId> prompt = prompt_of(18);
  world.ask(prompt);
  TiersWorld::Asked asked = world.begin(prompt);
  world.bring_up(asked);
  world.compute(asked);  // and looks at every byte
  EXPECT_EQ(asked.load->adopted[static_cast<size_t>(Tier::kHost)], 18u);
  world.release(std::move(asked));
  world.settle();
  EXPECT_EQ(world.tiers().stats().host_codec.decoded, 18u);
  EXPECT_EQ(world.tiers().stats().host.corrupt, 0u);
}

// The device ends at any point of the copies, with pages on their way to host memory or to disk.
// Its events are done then, as are those of copies that were made.
TEST(TiersHost, copies_that_a_device_did_not_live_to_make_are_not_kept) {
  const std::vector<TokenId> prompt = prompt_of(6);
  for (const bool host : {true, false}) {
    for (uint32_t events = 0; events < 12; ++events) {
      TiersShape shape = shape_of(20, 4u << 20);
      shape.host_codec = PageCodec::kIdentity;
      if (!host) shape.host.clear();
      TiersWorld world(shape, 1 + events);
      sim::SimDevice& device = world.machine().device();
      compute_and_keep(world, prompt);
      ASSERT_TRUE(world.run_until([&] { return !device.copies_out().empty(); }));
      for (uint32_t i = 0; i < events && device.copies_out().size() > 1; ++i) {
        world.machine().go_on();
      }
      device.fail();
      world.settle();
      EXPECT_EQ(world.tiers().check_integrity(), "");
      EXPECT_EQ(world.tiers().stats().host.pages, 0u);
      EXPECT_EQ(world.stored(), 0u);
      device.replace();
      world.forget();
      EXPECT_EQ(world.ask(prompt), 0u);
      EXPECT_EQ(world.ask(prompt), 6u);  // and looks at every byte
    }
  }
}

// Each unit in turn has another byte than was put there.
TEST(TiersHost, other_bytes_than_were_encoded_are_computed_again) {
  uint64_t found = 0;
  constexpr uint32_t kUnits = 4 * kPageBytes / kernels::kPageAlignment;
  for (uint32_t unit = 0; unit < kUnits; ++unit) {
    TiersWorld world(shape_of(4));
    const std::vector<TokenId> prompt = prompt_of(5);
    world.ask(prompt);
    ASSERT_EQ(world.tiers().stats().host.pages, 5u);
    world.machine().host_memory(0)[unit * kernels::kPageAlignment + 5] ^= std::byte{1};
    const uint32_t came = world.ask(prompt);  // and looks at every byte
    const TiersStats stats = world.tiers().stats();
    EXPECT_EQ(came, 5 - stats.host.corrupt);
    EXPECT_LE(stats.host.corrupt, 1u);
    found += stats.host.corrupt;
    EXPECT_EQ(world.ask(prompt), 5u);  // it was put there anew
  }
  EXPECT_EQ(found, 5 * kEncodedBytes / kernels::kPageAlignment);
}

TEST(TiersHost, other_bytes_than_were_encoded_are_not_written_to_the_store) {
  TiersShape shape = shape_of(20, 4u << 20);
  shape.nvme_codec = PageCodec::kPlanes;
  shape.codec_pages = 16;
  shape.write = WritePolicy::kReuse;
  TiersWorld world(shape);
  compute_and_keep(world, prompt_of(6));
  world.settle();
  ASSERT_EQ(world.tiers().stats().host.pages, 6u);
  ASSERT_EQ(world.stored(), 0u);
  world.machine().host_memory(0)[0] ^= std::byte{1};  // of the first that was given units
  // Kept again, so that it is wanted in the store, from host memory. The device has it as well.
  compute_and_keep(world, prompt_of(6));
  world.settle();
  TiersStats stats = world.tiers().stats();
  EXPECT_EQ(stats.host.corrupt, 1u);
  EXPECT_EQ(stats.host.pages, 5u);
  EXPECT_LT(world.stored(), 6u);
  EXPECT_EQ(world.tiers().check_integrity(), "");
  compute_and_keep(world, prompt_of(6));
  world.settle();
  EXPECT_EQ(world.stored(), 6u);
  world.forget();
  world.restart();
  EXPECT_EQ(world.ask(prompt_of(6)), 6u);  // looks at every byte
}

// The store's codec is the same: three jobs a page, to encode it, to put it into its units, and to
// gather it for the disk; none encodes it again.
TEST(TiersHost, a_page_is_written_to_the_store_as_it_lies) {
  TiersShape shape = shape_of(20, 4u << 20);
  shape.nvme_codec = PageCodec::kPlanes;
  shape.codec_pages = 16;
  TiersWorld world(shape);
  const std::vector<TokenId> prompt = prompt_of(12);
  world.ask(prompt);
  EXPECT_EQ(world.machine().workers().worked, 3 * 12u);
  EXPECT_EQ(world.stored(), 12u);
  const TiersStats stats = world.tiers().stats();
  EXPECT_EQ(stats.nvme_codec.encoded, 12u);
  EXPECT_EQ(stats.store.used_bytes, 12 * kEncodedBytes);
  world.restart();
  EXPECT_EQ(world.ask(prompt), 12u);
  EXPECT_EQ(world.tiers().stats().nvme_codec.decoded, 12u);
}

TEST(TiersHost, a_store_without_a_codec_gets_pages_as_they_are) {
  TiersShape shape = shape_of(20, 4u << 20);
  shape.codec_pages = 16;
  TiersWorld world(shape);
  const std::vector<TokenId> prompt = prompt_of(12);
  world.ask(prompt);
  EXPECT_EQ(world.stored(), 12u);
  EXPECT_EQ(world.tiers().stats().nvme_codec.encoded, 0u);
  EXPECT_EQ(world.tiers().stats().store.used_bytes, 12 * kPageBytes);
  world.restart();
  EXPECT_EQ(world.ask(prompt), 12u);
}

// What is reset, closed or given up after each event in turn.
TEST(TiersHost, a_reset_at_any_point_of_a_pages_way_down_leaves_nothing) {
  bool goes_on = true;
  for (uint32_t events = 0; goes_on; ++events) {
    ASSERT_LT(events, 2000u);
    TiersShape shape = shape_of(20, 4u << 20);
    shape.nvme_codec = PageCodec::kPlanes;
    TiersWorld world(shape, events);
    compute_and_keep(world, prompt_of(5));
    goes_on = go_on(world, events);
    world.tiers().clear();
    world.settle();
    const TiersStats stats = world.tiers().stats();
    ASSERT_EQ(stats.host.pages + stats.nvme.pages, 0u) << "after " << events;
    ASSERT_EQ(stats.host.used_bytes, 0u) << "after " << events;
    ASSERT_EQ(stats.store.used_bytes, 0u) << "after " << events;
    ASSERT_EQ(world.tiers().check_integrity(), "");
  }
}

TEST(TiersHost, tiers_close_at_any_point_of_a_pages_way_down) {
  bool goes_on = true;
  for (uint32_t events = 0; goes_on; ++events) {
    ASSERT_LT(events, 2000u);
    TiersShape shape = shape_of(3, 4u << 20);  // too few for all: some are evicted
    shape.nvme_codec = PageCodec::kPlanes;
    TiersWorld world(shape, events);
    compute_and_keep(world, prompt_of(6));
    goes_on = go_on(world, events);
    world.forget();
    world.restart();  // looks at the invariants when it closes
    world.ask(prompt_of(6));
  }
}

// case K5: a page that was given up may still be decoded into.
TEST(TiersHost, a_load_that_is_given_up_at_any_point_gives_all_back) {
  bool goes_on = true;
  for (uint32_t events = 0; goes_on; ++events) {
    ASSERT_LT(events, 2000u);
    TiersWorld world(shape_of(20), events);
    const std::vector<TokenId> prompt = prompt_of(8);
    world.ask(prompt);
    TiersWorld::Asked asked = world.begin(prompt);
    ASSERT_NE(asked.load, nullptr);
    for (uint32_t i = 0; i < events && goes_on; ++i) {
      const auto& slots = asked.load->slots;
      goes_on = std::any_of(slots.begin(), slots.end(), [](const Load::Slot& slot) {
        return slot.state != Load::State::kReady;
      });
      if (goes_on) ASSERT_TRUE(world.machine().go_on());
    }
    world.tiers().give_up(std::exchange(asked.load, nullptr));
    world.compute(asked);  // what is not given up would be overwritten
    world.release(std::move(asked));
    world.settle();
    world.forget();
    const GroupStats group = world.cache().cache().stats().groups[0];
    ASSERT_EQ(group.free, group.capacity) << "after " << events;
    ASSERT_EQ(world.ask(prompt), 8u);
    ASSERT_EQ(world.tiers().stats().host.corrupt, 0u);
  }
}

}  // namespace
}  // namespace spillway::cache
