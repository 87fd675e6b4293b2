// What clients want to be kept stays, as long as they said and as much as they may.
#include "scheduler/held_prefixes.h"

#include "tests/scheduler/engine_world.h"

namespace spillway::scheduler {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

// A prompt that nobody else sends: `length` tokens that `seed` gives.
Request prompt_from(uint64_t seed, uint32_t length, const std::string& tenant = "") {
  Request request;
  for (uint32_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<model::TokenId>(1 + random_at(77, seed, i) % 20));
  }
  request.stop.max_tokens = 0;
  request.tenant = tenant;
  return request;
}

// The static part of `seed`, and after it what only this one asks.
Request question(uint64_t seed, uint32_t static_tokens, uint64_t own, bool marked = true) {
  Request request = prompt_from(seed, static_tokens);
  const Request rest = prompt_from(own, 40);
  request.prompt.insert(request.prompt.end(), rest.prompt.begin(), rest.prompt.end());
  if (marked) request.breakpoints.push_back({static_tokens, minutes(30)});
  return request;
}

Request pin_of(Request request, const std::string& id, seconds ttl) {
  request.pin = PinOrder{id, ttl};
  return request;
}

void flood(World& world, uint64_t prompts = 12) {
  static uint64_t seed = 1'000'000;
  for (uint64_t i = 0; i < prompts; ++i) world.submit(prompt_from(++seed, 160));
}

TEST(HeldPrefixes, a_static_part_outlives_a_flood_and_an_unmarked_one_does_not) {
  for (const bool marked : {true, false}) {
    World world({.pages = 60});
    std::shared_ptr<Client> again;
    world.run_stages({[&] { world.submit(question(1, 100, 500, marked)); }, [&] { flood(world); },
                      [&] { again = world.submit(question(1, 100, 501, marked)); }});
    EXPECT_EQ(again->usage().cached_tokens, marked ? 96u : 0u);
    EXPECT_EQ(again->usage().static_tokens, marked ? 96u : 0u);
  }
}

// The window pages before a breakpoint are kept, so that another prompt can go on from there.
TEST(HeldPrefixes, with_windows_a_prompt_that_branches_at_a_breakpoint_starts_there) {
  for (const bool marked : {true, false}) {
    World world({.pages = 60, .window = 20});
    std::shared_ptr<Client> again;
    world.run_stages({[&] { world.submit(question(1, 100, 500, marked)); },
                      [&] { again = world.submit(question(1, 100, 501, marked)); }});
    EXPECT_EQ(again->usage().cached_tokens, marked ? 96u : 0u);
  }
}

TEST(HeldPrefixes, a_static_part_is_let_go_when_its_time_is_over) {
  World world({.pages = 60});
  std::shared_ptr<Client> again;
  world.run_stages({[&] { world.submit(question(1, 100, 500)); },
                    [&] {
                      world.clock().advance(hours(1));
                      flood(world);
                    },
                    [&] { again = world.submit(question(1, 100, 501)); }});
  EXPECT_EQ(again->usage().cached_tokens, 0u);
}

TEST(HeldPrefixes, a_chain_holds_its_last_path_for_a_while) {
  for (const bool soon : {true, false}) {
    World world({.pages = 60});
    std::shared_ptr<Client> next;
    uint32_t held = 0;
    world.run_stages({[&] {
                        Request request = prompt_from(1, 100);
                        request.chain = "resp_1";
                        world.submit(request);
                      },
                      [&] {
                        Request request = prompt_from(1, 120);
                        request.chain = "resp_1";
                        world.submit(request);
                      },
                      [&] {
                        held = world.steps().stats().static_parts;
                        if (!soon) world.clock().advance(minutes(11));
                        flood(world);
                      },
                      [&] { next = world.submit(prompt_from(1, 140)); }});
    EXPECT_EQ(held, 1u);
    EXPECT_EQ(next->usage().cached_tokens, soon ? 112u : 0u);
  }
}

// case I2: who holds the most gives up a place, not who comes.
TEST(HeldPrefixes, a_tenant_with_many_chains_leaves_others_theirs) {
  World world({.pages = 1400, .eviction_policy = cache::EvictionPolicyKind::kLru});
  const auto chain = [&](uint64_t seed, const std::string& tenant) {
    Request request = prompt_from(seed, tenant == "few" ? 33 : 17, tenant);
    request.chain = "resp " + std::to_string(seed);
    world.submit(request);
  };
  constexpr uint64_t kFew = 12;
  std::vector<std::shared_ptr<Client>> again;
  std::vector<std::function<void()>> stages;
  for (uint64_t at = 0; at < 1040; at += 40) {
    stages.push_back([&chain, at] {
      for (uint64_t i = 0; i < 40; ++i) chain(10'000 + at + i, "many");
    });
  }
  for (uint64_t i = 1; i <= kFew; ++i) stages.push_back([&chain, i] { chain(i, "few"); });
  // Its own prompts, for others' cannot evict what is below its share.
  stages.push_back([&] {
    for (uint64_t i = 0; i < 400; ++i) world.submit(prompt_from(20'000 + i, 160, "few"));
  });
  stages.push_back([&] {
    for (uint64_t i = 1; i <= kFew; ++i) again.push_back(world.submit(prompt_from(i, 40, "few")));
  });
  world.run_stages(std::move(stages));
  EXPECT_EQ(world.steps().stats().static_parts, 1024u);
  ASSERT_EQ(again.size(), kFew);
  for (const auto& client : again) EXPECT_EQ(client->usage().cached_tokens, 32u);
}

TEST(HeldPrefixes, who_wants_nothing_from_the_cache_has_its_own_back_after_a_preemption) {
  World world({.pages = 60, .preempt_every = 20});
  Request request = question(1, 100, 500, false);
  request.explicit_breakpoints = true;
  request.stop.max_tokens = 60;
  request.stop.ignore_eos = true;
  std::shared_ptr<Client> client;
  world.run_stages({[&] { client = world.submit(request); }});
  EXPECT_EQ(client->usage().cached_tokens, 0u);
  EXPECT_GT(client->usage().preemptions, 0u);
  EXPECT_GT(world.steps().stats().prefix_hits, 0u);
}

TEST(HeldPrefixes, in_explicit_mode_only_what_is_marked_goes_down_and_unmarked_takes_nothing) {
  sim::SimFiles files;
  World world({.pages = 60, .files = &files});
  std::shared_ptr<Client> unmarked;
  uint64_t written = 0, more = 0;
  world.run_idle_stages({[&] {
                           Request request = question(1, 100, 500);
                           request.explicit_breakpoints = true;
                           world.submit(request);
                         },
                         [&] {
                           written = world.tiers().stats().nvme.writes;
                           Request request = question(1, 100, 500, false);
                           request.explicit_breakpoints = true;
                           unmarked = world.submit(request);
                         },
                         [&] { more = world.tiers().stats().nvme.writes; }});
  EXPECT_EQ(written, 6u);
  EXPECT_EQ(more, 6u);
  EXPECT_EQ(unmarked->usage().cached_tokens, 0u);
}

TEST(HeldPrefixes, a_pin_outlives_static_parts_and_ends_at_its_time) {
  World world({.pages = 60});
  std::shared_ptr<Client> pinned, hit, miss;
  world.run_stages({[&] { pinned = world.submit(pin_of(prompt_from(1, 100), "a", minutes(10))); },
                    [&] {
                      for (uint64_t i = 0; i < 12; ++i)
                        world.submit(question(10 + i, 120, 600 + i));
                    },
                    [&] { hit = world.submit(prompt_from(1, 120)); },
                    [&] {
                      world.clock().advance(minutes(11));
                      flood(world);
                    },
                    [&] { miss = world.submit(prompt_from(1, 120)); }});
  ASSERT_TRUE(pinned->pin());
  EXPECT_EQ(pinned->pin()->result, PinResult::kPinned);
  EXPECT_EQ(pinned->pin()->tokens, 96u);
  EXPECT_EQ(hit->usage().cached_tokens, 96u);
  EXPECT_EQ(miss->usage().cached_tokens, 0u);
}

// An idle engine too: the gauge falls when the time is over, without any request.
TEST(HeldPrefixes, an_idle_engine_ends_pins) {
  World world({.pages = 60});
  std::shared_ptr<Client> pinned;
  uint32_t left = 1;
  world.run_idle_stages(
      {[&] { pinned = world.submit(pin_of(prompt_from(1, 100), "a", minutes(10))); },
       [&] { left = world.steps().stats().pins; }});
  EXPECT_EQ(pinned->pin()->result, PinResult::kPinned);
  EXPECT_EQ(left, 0u);
  EXPECT_GE(world.clock().now().time_since_epoch(), minutes(10));
}

TEST(HeldPrefixes, pins_stay_below_their_limit) {
  World world({.pages = 60, .pin_share = 0.2});  // 12 pages
  std::shared_ptr<Client> first, second, large, renewed, other;
  world.run_stages(
      {[&] { first = world.submit(pin_of(prompt_from(1, 112), "a", hours(1))); },
       [&] {
         second = world.submit(pin_of(prompt_from(2, 112), "b", hours(1)));
         large = world.submit(pin_of(prompt_from(3, 13 * 16), "c", hours(1)));
         renewed = world.submit(pin_of(prompt_from(1, 160), "a", hours(1)));
         world.steps().push(UnpinCommand{"", "a", [](bool found) { EXPECT_TRUE(found); }});
         world.steps().push(UnpinCommand{"", "z", [](bool found) { EXPECT_FALSE(found); }});
       }});
  EXPECT_EQ(first->pin()->result, PinResult::kPinned);
  EXPECT_EQ(second->pin()->result, PinResult::kNoRoom);
  EXPECT_EQ(second->pin()->pinned_pages, 7u);
  EXPECT_EQ(second->pin()->limit_pages, 12u);
  EXPECT_EQ(second->usage().computed_tokens, 0u);  // refused before anything was computed
  EXPECT_EQ(large->pin()->result, PinResult::kTooLarge);
  EXPECT_EQ(renewed->pin()->result, PinResult::kPinned);
}

// case I2
TEST(HeldPrefixes, each_tenant_has_an_equal_part_of_the_limit) {
  World world({.pages = 60, .pin_share = 0.4, .pin_tenants = 2});  // 12 pages each
  std::shared_ptr<Client> one, more, other;
  world.run_stages(
      {[&] { one = world.submit(pin_of(prompt_from(1, 160, "one"), "a", hours(1))); },
       [&] { more = world.submit(pin_of(prompt_from(2, 64, "one"), "b", hours(1))); },
       [&] { other = world.submit(pin_of(prompt_from(3, 160, "other"), "a", hours(1))); }});
  EXPECT_EQ(one->pin()->result, PinResult::kPinned);
  EXPECT_EQ(more->pin()->result, PinResult::kNoRoom);
  EXPECT_EQ(other->pin()->result, PinResult::kPinned);
}

TEST(HeldPrefixes, pins_are_listed_for_their_tenant_until_a_reset_ends_them) {
  World world({.pages = 60});
  std::shared_ptr<Client> again;
  PinList mine, others, after;
  const auto list = [&](const char* tenant, PinList& into) {
    world.steps().push(ListPinsCommand{tenant, [&](PinList found) { into = std::move(found); }});
  };
  world.run_stages({[&] {
                      world.submit(pin_of(prompt_from(1, 100), "a", hours(1)));
                      world.submit(pin_of(prompt_from(2, 40), "b", minutes(5)));
                    },
                    [&] {
                      list("", mine);
                      list("other", others);
                      world.steps().push(ResetCacheCommand{[](uint64_t) {}});
                      list("", after);
                      again = world.submit(prompt_from(1, 120));
                    }});
  ASSERT_EQ(mine.pins.size(), 2u);
  EXPECT_EQ(mine.pins[0].id, "a");
  EXPECT_EQ(mine.pins[0].tokens, 96u);
  EXPECT_EQ(mine.pins[0].device_tokens, 96u);
  EXPECT_NEAR(mine.pins[1].seconds_left, 300, 1);
  EXPECT_EQ(mine.pinned_pages, 8u);
  EXPECT_EQ(mine.limit_pages, 15u);
  EXPECT_TRUE(others.pins.empty());
  EXPECT_TRUE(after.pins.empty());
  EXPECT_EQ(again->usage().cached_tokens, 0u);
}

}  // namespace
}  // namespace spillway::scheduler
