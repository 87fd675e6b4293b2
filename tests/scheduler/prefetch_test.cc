// Pages of an open session come up before its next request, and stand in nobody's way.
#include "tests/scheduler/engine_world.h"

namespace spillway::scheduler {
namespace {

Request prompt_from(uint64_t seed, uint32_t length) {
  Request request;
  for (uint32_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<model::TokenId>(1 + random_at(78, seed, i) % 20));
  }
  request.stop.max_tokens = 0;
  return request;
}

Request turn(const std::string& session, uint64_t seed, uint32_t length) {
  Request request = prompt_from(seed, length);
  request.session = session;
  return request;
}

// What nobody holds, and sessions' pages go after it: so these are sessions too.
void flood(World& world, uint64_t prompts, bool held) {
  static uint64_t seed = 2'000'000;
  for (uint64_t i = 0; i < prompts; ++i) {
    ++seed;
    world.submit(held ? turn("other " + std::to_string(seed), seed, 160) : prompt_from(seed, 160));
  }
}

struct Outcome {
  uint32_t device_tokens = 0, nvme_tokens = 0;
  uint64_t prefetched_tokens = 0;
};

// A session's first turn, then so many others that its pages leave the device; then what
// `meanwhile` does, and its second turn.
Outcome second_turn(WorldOptions options, const std::function<void(World&)>& meanwhile) {
  sim::SimFiles files;
  options.files = &files;
  options.nvme_bytes = 16u << 20;
  World world(options);
  std::shared_ptr<Client> second;
  world.run_idle_stages({[&] { world.submit(turn("mine", 1, 200)); },
                         [&] { flood(world, 12, true); }, [&] { flood(world, 8, false); },
                         [&] { meanwhile(world); },
                         [&] { second = world.submit(turn("mine", 1, 230)); }});
  const Usage& usage = second->usage();
  return {usage.cached_tokens - usage.nvme_tokens, usage.nvme_tokens,
          world.steps().stats().prefetched_tokens};
}

TEST(Prefetch, what_left_the_device_is_back_before_the_next_turn) {
  for (const uint32_t window : {0u, 40u}) {
    const Outcome without = second_turn({.pages = 60, .window = window}, [](World&) {});
    EXPECT_LT(without.device_tokens, 192u);
    EXPECT_GT(without.nvme_tokens, 0u);
    const Outcome with = second_turn({.pages = 60, .window = window}, [](World& world) {
      world.steps().push(PrefetchCommand{"mine"});
    });
    EXPECT_EQ(with.device_tokens, 192u);
    EXPECT_EQ(with.nvme_tokens, 0u);
    EXPECT_GT(with.prefetched_tokens, 0u);
  }
}

TEST(Prefetch, it_takes_no_page_that_something_holds) {
  const Outcome outcome = second_turn({.pages = 60}, [](World& world) {
    flood(world, 12, true);
    world.steps().push(PrefetchCommand{"mine"});
  });
  EXPECT_EQ(outcome.prefetched_tokens, 0u);
}

TEST(Prefetch, an_unknown_or_ended_session_brings_nothing_up) {
  for (const bool ended : {true, false}) {
    const Outcome outcome = second_turn({.pages = 60}, [&](World& world) {
      if (ended) world.steps().push(EndSessionCommand{"mine"});
      world.steps().push(PrefetchCommand{ended ? "mine" : "nobody"});
    });
    EXPECT_EQ(outcome.prefetched_tokens, 0u);
  }
}

// Prompts that share nothing, each with an answer of so many tokens.
std::vector<std::shared_ptr<Client>> submit_many(World& world, uint64_t count, uint64_t first_seed,
                                                 uint32_t prompt_tokens, uint32_t max_tokens) {
  std::vector<std::shared_ptr<Client>> clients;
  for (uint64_t i = 0; i < count; ++i) {
    Request request = prompt_from(first_seed + i, prompt_tokens);
    request.stop.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    clients.push_back(world.submit(request));
  }
  return clients;
}

// The pages that a prefetch has set aside are given up as soon as a request wants them.
TEST(Prefetch, a_request_that_needs_the_room_has_it_at_once) {
  WorldOptions options{.pages = 60};
  options.faults.latency_max = std::chrono::milliseconds(50);
  std::vector<std::shared_ptr<Client>> crowd;
  const Outcome outcome = second_turn(options, [&](World& world) {
    world.steps().push(PrefetchCommand{"mine"});
    crowd = submit_many(world, 5, 3'000'000, 300, 60);
  });
  for (const auto& client : crowd) EXPECT_EQ(client->usage().completion_tokens, 60u);
  EXPECT_LT(outcome.prefetched_tokens, 192u);
}

// Streams that grow take a prefetch's room before one of them has to go.
TEST(Prefetch, no_stream_is_preempted_for_it) {
  WorldOptions options{.pages = 60};
  options.take_turns = false;
  options.load_bytes_max = 4096;  // a page at a time is on its way, the others have room set aside
  std::vector<std::shared_ptr<Client>> streams;
  uint64_t preemptions = 1;
  const Outcome outcome = second_turn(options, [&](World& world) {
    world.disk().faults.stall = 1;
    world.disk().faults.stall_time = std::chrono::milliseconds(1500);
    preemptions = world.steps().stats().preemptions;
    world.steps().push(PrefetchCommand{"mine"});
    streams = submit_many(world, 3, 4'000'000, 40, 250);
    world.when([&] { return streams.back()->done(); },
               [&] { preemptions = world.steps().stats().preemptions - preemptions; });
  });
  for (const auto& client : streams) EXPECT_EQ(client->usage().completion_tokens, 250u);
  EXPECT_EQ(preemptions, 0u);
  EXPECT_EQ(outcome.prefetched_tokens, 0u);
}

// case K18
TEST(Prefetch, a_disk_that_fails_leaves_nothing_behind) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions options{.seed = seed, .pages = 60, .window = seed % 2 == 0 ? 40u : 0u};
    options.faults.read_error = 0.2;
    options.faults.bit_rot = 0.1;
    options.faults.stall = 0.05;
    SCOPED_TRACE("seed " + std::to_string(seed));
    second_turn(options, [](World& world) { world.steps().push(PrefetchCommand{"mine"}); });
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace spillway::scheduler
