// The engine with tiers, in simulation, over the CUDA device itself on the simulated runtime: its
// events come late, and its calls and operations fail. Whatever happens every answer is that of a
// run without any cache, or an error that names the GPU, nothing is left behind, CUDA is used as it
// is to be, and what lies on NVMe is good.
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include "tests/scheduler/engine_world.h"
#include "tests/sim/stepped_gpu.h"

namespace spillway::scheduler {
namespace {

WorldOptions options_of(uint64_t i, sim::SimFiles* files) {
  WorldOptions options = options_of_seed(i);
  options.host_pages = files == nullptr || i % 3 == 0 ? 30 + 20 * static_cast<uint32_t>(i % 4) : 0;
  options.files = files;
  options.nvme_bytes = 4u << 20;
  options.faults.latency_max = std::chrono::microseconds(200 << (i % 4));
  options.load_all = true;
  options.long_prompts = i % 2 == 0;
  options.device_error = "GPU 0 has failed";
  return options;
}

// A world's life over a GPU of its own, in which nothing waits for it.
cache::TiersStats run_world(WorldOptions options, sim::SteppedGpu& gpu,
                            const std::function<void(World&)>& live) {
  options.device = &gpu;
  options.run_device = [&gpu] { return gpu.run_one(); };
  World world(options);
  gpu.cuda().forbid_waiting(true);
  live(world);
  gpu.cuda().forbid_waiting(false);
  const cache::TiersStats& stats = world.tiers_stats();
  EXPECT_EQ(stats.host.corrupt + stats.nvme.corrupt, 0u);
  if (gpu.failure() == nullptr) EXPECT_EQ(world.failed_clients(), 0u);
  return stats;
}

cache::TiersStats run_random_world(const WorldOptions& options, sim::SteppedGpu& gpu,
                                   uint64_t steps) {
  return run_world(options, gpu, [steps](World& world) { world.run_random(steps); });
}

// cases K1, K5, K6, K9, K12, K14, K15, K16, K18
TEST(CudaSimulation, answers_are_those_of_a_run_without_cache) {
  uint64_t from_host = 0, from_nvme = 0, down = 0, late = 0;
  for (uint64_t run = 0; run < 12; ++run) {
    const uint64_t i = base_seed() + run;
    SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(i));
    sim::SimFiles files;
    sim::SteppedGpu gpu({.seed = i, .write_words = i % 5 != 3, .batches = i % 7 != 3});
    const cache::TiersStats stats =
        run_random_world(options_of(i, run % 4 == 0 ? nullptr : &files), gpu, 300);
    EXPECT_EQ(gpu.failure(), nullptr);
    from_host += stats.host.hits;
    from_nvme += stats.nvme.hits;
    down += stats.host.writes + stats.nvme.writes;
    late += gpu.times_still();
    EXPECT_EQ(gpu.end(), "");
    if (testing::Test::HasFailure()) return;
  }
  std::printf("%llu pages from host memory, %llu from NVMe, %llu down\n",
              static_cast<unsigned long long>(from_host),
              static_cast<unsigned long long>(from_nvme), static_cast<unsigned long long>(down));
  EXPECT_GT(from_host, 50u);
  EXPECT_GT(from_nvme, 100u);
  EXPECT_GT(down, 500u);
  EXPECT_GT(late, 100u);
}

struct Fault {
  const char* name;
  uint32_t most;    // it comes behind fewer others of its kind
  int stream = -1;  // whose operation breaks the GPU; else: a call of that name is refused
};
constexpr Fault kFaults[] = {
    {"a step", 60, 0},
    {"a copy up", 20, 1},
    {"a copy down", 20, 2},
    {"launch", 100},
    {"cudaMemcpyBatchAsync", 30},
    {"cudaMemcpyAsync", 30},
    {"cudaEventCreateWithFlags", 30},
    {"cudaEventRecord", 100},
    {"cuStreamWriteValue32", 100},
    {"cudaSetDevice", 300},
};

void break_gpu(sim::SteppedGpu& gpu, const Fault& fault, uint32_t after) {
  if (fault.stream >= 0) {
    gpu.cuda().fail_stream(gpu.native(static_cast<uint64_t>(fault.stream)),
                           cudaErrorECCUncorrectable, after);
  } else {
    gpu.cuda().fail_call(fault.name, cudaErrorLaunchFailure, after);
  }
}

// cases K12, K18, S1: and the next process, over another GPU, is served from what was stored.
TEST(CudaSimulation, whatever_ends_the_gpu_spoils_no_page_below_it) {
  uint64_t hits = 0;
  for (const Fault& fault : kFaults) {
    uint64_t ended = 0;
    for (uint64_t run = 0; run < 3; ++run) {
      const uint64_t i = base_seed() + run;
      SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(i) + " " + fault.name);
      sim::SimFiles files;
      WorldOptions options = options_of(i, &files);  // the same prompts in both lives
      options.clear_at_end = false;
      for (const bool breaks : {true, false}) {
        sim::SteppedGpu gpu({.seed = breaks ? i : i + 1000});
        if (breaks) {  // behind the calls that a world begins with
          const auto after = static_cast<uint32_t>(random_at(i, 5, 0) % fault.most);
          break_gpu(gpu, fault, fault.stream >= 0 ? after : 30 + after);
        }
        const cache::TiersStats stats = run_random_world(options, gpu, 120);
        ended += gpu.failure() != nullptr ? 1 : 0;
        if (!breaks) {
          EXPECT_EQ(gpu.failure(), nullptr);
          hits += stats.nvme.hits;
        }
        EXPECT_EQ(gpu.end(), "");
        if (testing::Test::HasFailure()) return;
      }
    }
    EXPECT_GT(ended, 0u) << fault.name;
  }
  EXPECT_GT(hits, 200u);
}

// Asks for a prompt that begins as what another life left on NVMe.
struct Asked {
  uint32_t from_nvme = 0;
  uint64_t under_load = 0;
  bool failed = false;
};
Asked ask(const WorldOptions& options, sim::SteppedGpu& gpu, uint32_t tokens) {
  Asked asked;
  const cache::TiersStats stats = run_world(options, gpu, [&](World& world) {
    const auto client = world.submit(prompt_of(tokens, 3));
    world.run_to_end();
    asked.from_nvme = client->usage().nvme_tokens;
    asked.failed = client->failed();
  });
  asked.under_load = stats.steps_under_load;
  return asked;
}

WorldOptions options_of_bands(sim::SimFiles& files) {
  WorldOptions options;
  options.files = &files;
  options.layers = 8;
  options.step_tokens = 512;
  options.staging_bytes = options.codec_bytes = 512u << 10;
  options.faults.latency_min = options.faults.latency_max = std::chrono::microseconds(500);
  options.bands = cache::BandLoads::kAlways;
  options.clear_at_end = false;
  options.device_error = "GPU 0 has failed";
  return options;
}

// A step that is enqueued behind gates, while its prefix is still read and copied up: whichever of
// its operations is the GPU's last, the step ends, and another GPU is served the prefix again.
TEST(CudaSimulation, a_gpu_that_ends_behind_gates_ends_the_step_and_spoils_no_page) {
  constexpr Fault kBehindGates[] = {
      {"cuStreamWaitValue32", 0, -1}, {"a step", 0, 0}, {"a copy up", 0, 1}};
  for (const Fault& fault : kBehindGates) {
    uint64_t failed = 0;
    for (uint32_t after = 0; after < 10; ++after) {
      SCOPED_TRACE(fault.name + (" after " + std::to_string(after)));
      sim::SimFiles files;
      const WorldOptions options = options_of_bands(files);
      for (const uint64_t life : {0u, 1u, 2u}) {
        sim::SteppedGpu gpu({.seed = base_seed() + after + life});
        if (life == 1) break_gpu(gpu, fault, after);
        const Asked asked = ask(options, gpu, life == 0 ? 300 : 360);
        EXPECT_EQ(asked.failed, gpu.failure() != nullptr);
        failed += asked.failed ? 1 : 0;
        if (life > 0 && !asked.failed) EXPECT_GE(asked.from_nvme, 288u);
        if (life == 1 && !asked.failed) EXPECT_EQ(asked.under_load, 1u);
        if (life == 2) EXPECT_FALSE(asked.failed);
        EXPECT_EQ(gpu.end(), "");
        if (testing::Test::HasFailure()) return;
      }
    }
    EXPECT_GE(failed, 5u) << fault.name;
  }
}

}  // namespace
}  // namespace spillway::scheduler
