// Steps that run under the load of their own prefix, in simulation: the fake model checks each
// layer's bytes when the step comes to it, and every answer is that of a run without any cache,
// whatever fails, is late, is cancelled or dies in the middle.
#include "tests/scheduler/engine_world.h"

namespace spillway::scheduler {
namespace {

using namespace std::chrono_literals;

WorldOptions banded(sim::SimFiles& files) {
  WorldOptions options;
  options.seed = base_seed();
  options.files = &files;
  options.layers = 10;  // pages of 20 KiB, 5 bands of two layers
  options.bands = cache::BandLoads::kAlways;
  options.nvme_bytes = 8u << 20;
  options.staging_bytes = 1u << 20;
  options.faults.latency_max = 1ms;
  return options;
}

// A first life leaves a prompt of 300 tokens in the store.
void leave_prefix(WorldOptions options) {
  options.faults = {};
  options.clear_at_end = false;
  World world(options);
  world.submit(prompt_of(300, 2));
  world.run_to_end();
  EXPECT_GE(world.tiers_stats().nvme.pages, 18u);
}

constexpr uint64_t kLooksMax = 1000;  // more than there are in a life on a disk that answers

// What a life sees that looks for that prefix.
struct Life {
  cache::TiersStats tiers;
  uint64_t looks = 0;
  uint64_t reads = 0;  // that ended, behind those of opening
  uint32_t from_nvme = 0;
};

// `at_look` is told how many there were before: the first is before anything happens.
Life second_life(WorldOptions options, const std::function<void(World&, uint64_t)>& at_look) {
  options.clear_at_end = false;
  World world(options);
  const auto client = world.submit(prompt_of(360, 3));
  Life life;
  bool over = false;
  const uint64_t opening = world.disk().stats().reads;
  at_look(world, life.looks++);
  world.run_to_end([&] {
    if (life.looks % 4 == 0) world.check();
    life.reads = world.disk().stats().reads - opening;
    at_look(world, life.looks++);
    // A disk that was set aside is probed for ever, so that the world is never idle.
    if (client->done() && !std::exchange(over, true)) world.steps().push(ShutDownCommand{});
  });
  life.tiers = world.tiers_stats();
  life.from_nvme = client->usage().nvme_tokens;
  EXPECT_TRUE(client->done());
  return life;
}

TEST(Bands, a_suffix_is_computed_while_its_prefix_still_comes) {
  for (const uint32_t window : {0u, 40u}) {
    sim::SimFiles files;
    WorldOptions options = banded(files);
    options.window = window;
    leave_prefix(options);
    const Life life = second_life(options, [](World&, uint64_t) {});
    EXPECT_EQ(life.tiers.steps_under_load, 1u);
    EXPECT_EQ(life.tiers.steps_in_vain, 0u);
    EXPECT_EQ(life.from_nvme, 288u);
  }
}

TEST(Bands, a_load_page_by_page_gives_the_same) {
  sim::SimFiles files;
  WorldOptions options = banded(files);
  options.bands = cache::BandLoads::kOff;
  leave_prefix(options);
  const Life life = second_life(options, [](World&, uint64_t) {});
  EXPECT_EQ(life.tiers.steps_under_load, 0u);
  EXPECT_EQ(life.from_nvme, 288u);
}

// As if it had not been: what its load has brought serves the next request.
TEST(Bands, a_step_under_load_that_fails_on_the_device_leaves_nothing_behind) {
  for (const uint32_t window : {0u, 40u}) {
    sim::SimFiles files;
    WorldOptions options = banded(files);
    options.window = window;
    leave_prefix(options);
    options.clear_at_end = false;
    World world(options);
    world.runner().fails_every = 1;
    const auto client = world.submit(prompt_of(360, 3));
    world.run_to_end([&] { world.check(); });
    EXPECT_TRUE(client->failed());
    EXPECT_EQ(world.tiers_stats().steps_under_load, 1u);
    EXPECT_EQ(world.tiers_stats().steps_in_vain, 1u);
  }
}

TEST(Bands, a_device_without_gates_takes_its_prefix_page_by_page) {
  sim::SimFiles files;
  WorldOptions options = banded(files);
  options.gates = false;
  leave_prefix(options);
  const Life life = second_life(options, [](World&, uint64_t) {});
  EXPECT_EQ(life.tiers.steps_under_load, 0u);
  EXPECT_EQ(life.from_nvme, 288u);
}

enum class Fault { kFails, kRots, kNeverEnds };

// Whether there was such a read: the one behind so many others meets the fault. A read fails or
// rots when it ends and stalls when it begins, where several begin between two looks all of them.
bool meets_fault(const WorldOptions& options, Fault fault, uint64_t read, Life& life) {
  std::optional<uint64_t> opening, armed;
  bool met = false;
  life = second_life(options, [&](World& world, uint64_t) {
    sim::SimDisk& disk = world.disk();
    uint64_t reads = disk.stats().reads;
    if (fault == Fault::kNeverEnds) reads += disk.memory_of(io::Operation::Kind::kRead).size();
    if (!opening) opening = reads;
    if (!armed && reads >= *opening + read) armed = reads;
    met = armed && reads > *armed;
    const double chance = armed && !met ? 1 : 0;
    sim::SimDiskFaults& faults = disk.faults;
    (fault == Fault::kFails  ? faults.read_error
     : fault == Fault::kRots ? faults.bit_rot
                             : faults.stall) = chance;
  });
  return met;
}

// cases K5, S1, S7, S11: each read in turn fails, rots or never ends.
TEST(Bands, any_band_that_fails_throws_the_step_away_and_the_prefix_is_computed) {
  uint64_t under = 0, in_vain = 0;
  for (const uint32_t window : {0u, 40u}) {
    sim::SimFiles healthy;
    WorldOptions options = banded(healthy);
    options.window = window;
    leave_prefix(options);
    const uint64_t reads = second_life(options, [](World&, uint64_t) {}).reads;
    ASSERT_GE(reads, 18u * 5);  // pages, bands
    for (const Fault fault : {Fault::kFails, Fault::kRots, Fault::kNeverEnds}) {
      for (uint64_t read = 0; read < reads; ++read) {
        SCOPED_TRACE("window " + std::to_string(window) + ", fault " +
                     std::to_string(static_cast<int>(fault)) + " at read " + std::to_string(read));
        sim::SimFiles files;
        options.files = &files;
        leave_prefix(options);
        Life life;
        EXPECT_TRUE(meets_fault(options, fault, read, life));
        EXPECT_GT(life.tiers.nvme.errors, 0u);
        under += life.tiers.steps_under_load;
        in_vain += life.tiers.steps_in_vain;
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(under, 300u);
  EXPECT_GT(in_vain, 300u);
}

// cases K5, K12: cancelled at each look, the request gives back what it held.
TEST(Bands, a_cancel_at_any_time_leaves_nothing_behind) {
  uint64_t under = 0;
  for (const uint32_t window : {0u, 40u}) {
    uint64_t looks = kLooksMax;
    for (uint64_t at = 0; at < looks; ++at) {
      SCOPED_TRACE("window " + std::to_string(window) + ", look " + std::to_string(at));
      sim::SimFiles files;
      WorldOptions options = banded(files);
      options.window = window;
      leave_prefix(options);
      const Life life = second_life(options, [&](World& world, uint64_t look) {
        if (look == at) world.steps().push(CancelCommand{static_cast<RequestId>(1)});
      });
      under += life.tiers.steps_under_load;
      if (testing::Test::HasFailure()) return;
      if (life.looks <= at) looks = at;
    }
    EXPECT_GT(looks, 150u);
    EXPECT_LT(looks, kLooksMax);
  }
  EXPECT_GT(under, 200u);
}

// case K18: killed at each look, the next life finds a store that serves what it has.
TEST(Bands, a_kill_at_any_time_changes_no_answer) {
  uint64_t under = 0;
  uint64_t looks = kLooksMax;
  for (uint64_t at = 0; at < looks; ++at) {
    SCOPED_TRACE("look " + std::to_string(at));
    sim::SimFiles files;
    const WorldOptions options = banded(files);
    leave_prefix(options);
    const Life killed = second_life(options, [&](World& world, uint64_t look) {
      if (look == at) world.disk().crash(sim::Crash::kProcess);
    });
    under += killed.tiers.steps_under_load;
    const Life after = second_life(options, [](World&, uint64_t) {});
    EXPECT_EQ(after.from_nvme, 288u);
    if (testing::Test::HasFailure()) return;
    if (killed.looks <= at) looks = at;
  }
  EXPECT_GT(looks, 150u);
  EXPECT_LT(looks, kLooksMax);
  EXPECT_GT(under, 100u);
}

// Bands that come later than planned are not waited for beyond their patience, and the load goes
// on.
TEST(Bands, a_disk_that_gets_slow_in_the_middle_holds_nobody_for_long) {
  sim::SimFiles files;
  WorldOptions options = banded(files);
  leave_prefix(options);
  uint64_t reads = 0;
  const Life life = second_life(options, [&](World& world, uint64_t) {
    const uint64_t ended = world.disk().stats().reads;
    if (reads == 0) reads = ended;
    const bool slow = ended >= reads + 40;
    world.disk().faults.latency_min = world.disk().faults.latency_max = slow ? 60ms : 1ms;
  });
  EXPECT_EQ(life.tiers.steps_under_load, 1u);
  EXPECT_EQ(life.tiers.steps_in_vain, 1u);
}

TEST(Bands, random_clients_get_the_answers_of_a_run_without_cache) {
  uint64_t under = 0, in_vain = 0;
  for (uint64_t run = 0; run < 40; ++run) {
    const uint64_t i = base_seed() + run;
    sim::SimFiles files;
    WorldOptions options = banded(files);
    options.seed = i;
    options.layers = 2 + static_cast<uint32_t>(i % 9);
    options.window = i % 2 == 0 ? 0 : 20 + 13 * static_cast<uint32_t>(i % 7);
    options.pages = 32 + 7 * static_cast<uint32_t>(i % 5);
    options.step_tokens = 32u << (i % 3);
    options.sequences = 1 + static_cast<uint32_t>(i % 4);
    options.preempt_every = i % 5 == 4 ? 17 : 0;
    options.host_pages = i % 3 == 0 ? 30 : 0;
    options.own_memory = i % 4 == 3;
    options.load_bytes_max = 16384u << (i % 6);
    options.faults.latency_max = std::chrono::microseconds(200 << (i % 6));
    options.faults.read_error = i % 4 == 0 ? 0.02 : 0;
    options.faults.bit_rot = i % 4 == 1 ? 0.02 : 0;
    options.faults.stall = i % 4 == 2 ? 0.01 : 0;
    options.looks_an_event = 3u << (i % 7);
    options.long_prompts = true;
    options.watch_operations = true;
    options.key_mode = i % 10 == 9 ? cache::KeyMode::kConstant : cache::KeyMode::kHash;
    SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(options.seed));
    World world(options);
    world.run_random(400);
    under += world.tiers_stats().steps_under_load;
    in_vain += world.tiers_stats().steps_in_vain;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(under, 20u);
  EXPECT_GT(in_vain, 0u);
}

}  // namespace
}  // namespace spillway::scheduler
