// The real step loop, policy and cache over a simulated device and a fake model whose KV bytes name
// their tokens: whatever the order of events, answers are those of a run without any cache, and
// everything is back at its baseline afterwards.
#include "tests/scheduler/engine_world.h"

namespace spillway::scheduler {
namespace {

// cases K9, K10, K12, K14, K15, K16
TEST(EngineSimulation, answers_are_those_of_a_run_without_cache_in_100000_steps) {
  uint64_t steps = 0, cached = 0, checked = 0;
  for (uint64_t run = 0; run < 40; ++run) {
    const uint64_t i = base_seed() + run;
    WorldOptions options;
    options.seed = i;
    options.window = i % 2 == 0 ? 0 : 20 + 13 * static_cast<uint32_t>(i % 7);
    options.pages = 40 + 7 * static_cast<uint32_t>(i % 11);
    options.step_tokens = 32u << (i % 3);
    options.sequences = 3 + static_cast<uint32_t>(i % 9);
    options.preempt_every = i % 5 == 4 ? 17 : 0;
    options.prefix_caching = i % 13 != 12;
    options.eviction_policy = static_cast<cache::EvictionPolicyKind>(i % 3);
    SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(options.seed));
    World world(options);
    world.run_random(2500);
    steps += world.steps().stats().steps;
    cached += world.cached_tokens();
    checked += world.runner().checked();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(steps, 100000u);
  EXPECT_GT(cached, 10000u);  // the cache was really used
  EXPECT_GT(checked, 1000000u);
}

// case K13
TEST(EngineSimulation, a_prompt_of_whole_pages_computes_its_last_token_again) {
  World world({});
  auto cold = world.submit(prompt_of(64, 4));
  world.steps().push(EndSessionCommand{"none"});
  auto warm = world.submit(prompt_of(64, 4));
  world.run_to_end();
  EXPECT_EQ(cold->usage().cached_tokens, 0u);
  EXPECT_EQ(cold->usage().computed_tokens, 64u);
  EXPECT_EQ(warm->usage().cached_tokens, 48u);
  EXPECT_EQ(warm->usage().computed_tokens, 16u);
}

TEST(EngineSimulation, two_in_flight_with_one_prefix_compute_it_once) {
  World world({.step_tokens = 32});
  auto first = world.submit(prompt_of(160, 8));
  auto second = world.submit(prompt_of(170, 8));
  world.run_to_end();
  EXPECT_EQ(first->usage().computed_tokens, 160u);
  EXPECT_EQ(second->usage().cached_tokens, 160u);
  EXPECT_EQ(second->usage().computed_tokens, 10u);
}

TEST(EngineSimulation, choices_of_one_request_compute_the_prompt_once) {
  World world({.pages = 100});
  Request request = prompt_of(100, 8);
  request.choices = 8;
  auto client = world.submit(request);
  world.run_to_end();
  EXPECT_EQ(client->usage().computed_tokens, 100u);
  EXPECT_EQ(client->usage().completion_tokens, 64u);
}

// What they computed in earlier steps stays of use to others.
TEST(EngineSimulation, a_step_that_fails_ends_the_requests_in_it_and_no_other) {
  World world({.step_tokens = 32});
  world.runner().fails_every = 6;
  Request request = prompt_of(100, 50);
  request.choices = 2;
  const auto first = world.submit(request);  // its prompt takes four steps
  std::shared_ptr<Client> second;
  world.run_stages({[] {},
                    [&] {
                      EXPECT_TRUE(first->failed(0));
                      EXPECT_TRUE(first->failed(1));
                      EXPECT_EQ(first->usage().completion_tokens, 4u);
                      second = world.submit(prompt_of(100, 4));
                    }});
  EXPECT_FALSE(second->failed());
  EXPECT_EQ(second->usage().cached_tokens, 96u);
}

TEST(EngineSimulation, steps_that_fail_change_no_answer_of_others) {
  uint64_t failed = 0;
  for (uint64_t run = 0; run < 8; ++run) {
    WorldOptions options;
    options.seed = base_seed() + run;
    options.window = run % 2 == 0 ? 0 : 40;
    options.host_pages = run % 4 < 2 ? 0 : 40;
    SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(options.seed));
    World world(options);
    world.runner().fails_every = 3 + 5 * run;
    world.run_random(600);
    failed += world.failed_clients();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(failed, 100u);
}

// case A4
TEST(EngineSimulation, a_session_that_ends_while_its_request_is_cancelled_leaves_no_lease) {
  World world({});
  Request request = prompt_of(90, 200);
  request.session = "gone";
  world.submit(request);
  world.run_steps_then(5, [&] {
    world.steps().push(CancelCommand{static_cast<RequestId>(1)});
    world.steps().push(EndSessionCommand{"gone"});
  });
  EXPECT_EQ(world.sessions_at_end(), 0u);
}

// case I1
TEST(EngineSimulation, another_tenant_or_salt_never_hits) {
  World world({});
  Request request = prompt_of(90, 2);
  auto first = world.submit(request);
  request.tenant = "a";
  auto tenant = world.submit(request);
  request.tenant = "";
  request.cache_salt = "a";
  auto salt = world.submit(request);
  world.run_to_end();
  EXPECT_EQ(tenant->usage().cached_tokens, 0u);
  EXPECT_EQ(salt->usage().cached_tokens, 0u);
}

TEST(EngineSimulation, prompt_logprobs_are_computed_and_not_taken_from_cached_pages) {
  World world({});
  auto first = world.submit(prompt_of(90, 0));
  Request request = prompt_of(90, 0);
  request.prompt_logprobs = 1;
  auto scored = world.submit(request);
  world.run_to_end();
  EXPECT_EQ(scored->usage().computed_tokens, 90u);
}

}  // namespace
}  // namespace spillway::scheduler
