// In which order the engine's operations on pages run: looked at before each operation of the
// simulated device, in random runs with tiers, forks, cancels and preemptions.
#include "tests/scheduler/engine_world.h"

namespace spillway::scheduler {
namespace {

WorldOptions watched(uint64_t seed) {
  WorldOptions options;
  options.seed = seed;
  options.window = seed % 2 == 0 ? 0 : 20 + 13 * static_cast<uint32_t>(seed % 7);
  options.pages = 36 + 7 * static_cast<uint32_t>(seed % 5);
  options.step_tokens = 32u << (seed % 3);
  options.sequences = 3 + static_cast<uint32_t>(seed % 9);
  options.preempt_every = seed % 5 == 4 ? 17 : 0;
  options.eviction_policy = static_cast<cache::EvictionPolicyKind>(seed % 3);
  options.watch_operations = true;
  return options;
}

// So many random runs; `shape` adds what the case needs. The watch fails them on the spot.
template <class Shape>
OperationsWatch::Seen run_watched(uint64_t runs, Shape shape) {
  OperationsWatch::Seen sum;
  for (uint64_t seed = base_seed(); seed < base_seed() + runs; ++seed) {
    SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(seed));
    sim::SimFiles files;
    WorldOptions options = watched(seed);
    shape(options, files);
    World world(options);
    world.run_random(300);
    const OperationsWatch::Seen& seen = world.seen();
    sum.steps += seen.steps;
    sum.steps_with_cancel += seen.steps_with_cancel;
    sum.fork_copies += seen.fork_copies;
    sum.freed_under_copy += seen.freed_under_copy;
    sum.stores_beside_step += seen.stores_beside_step;
    sum.loads_beside_step += seen.loads_beside_step;
    if (testing::Test::HasFailure()) break;
  }
  return sum;
}

// case K2
TEST(OperationOrder, no_page_is_given_to_another_while_a_step_or_a_fork_still_names_it) {
  const auto seen = run_watched(25, [](WorldOptions& options, sim::SimFiles& files) {
    options.files = &files;  // somebody who would take a page that is free
    options.faults.latency_max = std::chrono::microseconds(400);
  });
  // Requests were cancelled while their step was enqueued, and forks ended before their copies.
  EXPECT_GT(seen.steps_with_cancel, 500u);
  EXPECT_GT(seen.fork_copies, 500u);
  EXPECT_GT(seen.freed_under_copy, 10u);
}

// case K2: the client is gone in the middle of the only step that runs.
TEST(OperationOrder, pages_of_a_cancelled_request_are_its_own_until_its_step_has_run) {
  World world({.watch_operations = true});
  world.submit(prompt_of(90, 200));
  world.run_steps_then(5, [&] { world.cancel(static_cast<RequestId>(1)); });
  EXPECT_GT(world.seen().steps_with_cancel, 0u);
  EXPECT_LE(world.steps().stats().steps, 6u);  // and no step ran for it afterwards
}

// case K3
TEST(OperationOrder, a_store_begins_after_the_step_that_fills_its_page_has_ended) {
  for (const bool host : {true, false}) {
    const auto seen = run_watched(8, [host](WorldOptions& options, sim::SimFiles& files) {
      if (host) {
        options.host_pages = 200;
      } else {
        options.files = &files;
      }
    });
    EXPECT_GT(seen.stores_beside_step, 200u);  // they do run beside steps
  }
}

// case K4
TEST(OperationOrder, a_page_that_is_being_filled_is_named_by_no_other_operation) {
  for (const bool host : {true, false}) {
    const auto seen = run_watched(8, [host](WorldOptions& options, sim::SimFiles& files) {
      if (host) {
        options.host_pages = 60;
      } else {
        options.files = &files;
        options.faults.latency_max = std::chrono::microseconds(2000);
        options.faults.stall = options.seed % 4 == 0 ? 0.01 : 0;  // reads that are given up
      }
    });
    EXPECT_GT(seen.loads_beside_step, 200u);
    EXPECT_GT(seen.fork_copies, 200u);
  }
}

}  // namespace
}  // namespace spillway::scheduler
