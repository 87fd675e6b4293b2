// Tiers are never slower than the faster of the two ways, load or recompute, at any disk speed:
// whole requests in simulated time (tests/scheduler/timed_world.h).
//
// SPILLWAY_SIM_TABLE=1 prints the table of docs/BENCHMARKS.md.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/scheduler/timed_world.h"

namespace spillway::scheduler {
namespace {

// A request of a warm-up tells the rates: this many of them.
constexpr uint32_t kWarmUps = 3;

constexpr Model kModels[] = {
    {"1 KiB, 20,000/s", 8, 20e3}, {"4 KiB, 100,000/s", 32, 100e3}, {"8 KiB, 100,000/s", 64, 100e3}};
constexpr double kDisks[] = {50e6, 100e6, 200e6, 500e6, 1e9, 2e9, 3.5e9, 7e9};
constexpr double kLatencies[] = {80e-6, 500e-6, 2e-3};
constexpr Ask kAsks[] = {{512, 32}, {2048, 32}, {2048, 1024}, {8192, 32}, {8192, 1024}};

struct Bound {
  double best_s = 0, compute_s = 0, load_s = 0;
};

Bound bound_of(const Model& model, const DiskSpeed& disk, const Ask& ask) {
  const uint32_t end = ask.prefix + ask.suffix;
  Bound bound;
  bound.compute_s = model.compute_s(0, end);
  bound.load_s = disk.load_s(model, ask.prefix) + model.compute_s(ask.prefix, end);
  bound.best_s = std::min(bound.compute_s, bound.load_s);
  return bound;
}

// One after the other, of prefixes that are below the device alone; the first ones, which tell the
// rates, are not among what is returned. `before` is told which comes next.
std::vector<Asked> ask_each(
    TimedWorld& timed, std::span<const Ask> asks,
    const std::function<void(size_t)>& before = [](size_t) {}) {
  std::vector<Asked> asked;
  std::vector<std::function<void()>> stages;
  for (const uint32_t prefix : {512u, 2048u, 8192u}) {
    stages.push_back([&timed, prefix] { timed.ask({prefix, 0}); });
  }
  const auto forgotten = [&timed](Ask ask) {
    timed.world().forget_on_device();
    return timed.ask(ask);
  };
  for (uint32_t i = 0; i < kWarmUps; ++i) {
    stages.push_back([forgotten] { forgotten({8192, 32}); });
  }
  for (size_t i = 0; i < asks.size(); ++i) {
    stages.push_back([&, i] {
      before(i);
      asked.push_back(forgotten(asks[i]));
    });
  }
  timed.world().run_idle_stages(std::move(stages));
  return asked;
}

// After three requests that tell the rates. Where the last step computed from the front ends after
// the load it cannot be taken back; that too is within the bound.
TEST(NeverSlower, than_the_faster_of_load_and_recompute_at_any_disk_speed) {
  const bool table = std::getenv("SPILLWAY_SIM_TABLE") != nullptr;
  const uint64_t seed = base_seed();
  SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(seed));
  double worst = 0, sum = 0;
  uint32_t count = 0;
  for (const Model& model : kModels) {
    for (const double rate : kDisks) {
      const double latency = kLatencies[count % 3];
      const DiskSpeed disk{rate, latency};
      TimedWorld timed(seed, model, {.disk = &disk});
      const std::vector<Asked> asked = ask_each(timed, kAsks);
      ASSERT_EQ(asked.size(), std::size(kAsks));
      for (size_t i = 0; i < asked.size(); ++i) {
        const Usage& usage = asked[i].client->usage();
        const Bound bound = bound_of(model, disk, kAsks[i]);
        const double took_s = asked[i].seconds();
        const double ratio = took_s / bound.best_s;
        worst = std::max(worst, ratio);
        sum += ratio;
        ++count;
        if (table) {
          std::printf("| %s | %g | %g | %u + %u | %.2f | %.2f | %.2f | %u | %.3f |\n", model.name,
                      rate / 1e6, latency * 1e3, kAsks[i].prefix, kAsks[i].suffix,
                      bound.compute_s * 1e3, bound.load_s * 1e3, took_s * 1e3, usage.nvme_tokens,
                      ratio);
        }
        EXPECT_LE(took_s, 1.05 * bound.best_s)
            << model.name << ", " << rate / 1e6 << " MB/s, " << latency * 1e3 << " ms, "
            << kAsks[i].prefix << " + " << kAsks[i].suffix << ": computed " << usage.computed_tokens
            << ", loaded " << usage.nvme_tokens << ", recompute " << bound.compute_s << " s, load "
            << bound.load_s << " s";
      }
    }
  }
  std::printf("seed %llu: %u requests, of the faster way's time: mean %.3f, worst %.3f\n",
              static_cast<unsigned long long>(seed), count, sum / count, worst);
}

// What a load let go of holds its memory until the disk is done with it, and in a pool of the
// request's own size nobody has room to compute in meanwhile. That wait is the price of so small a
// pool (1.16 of a large one's time with the default seed); to give the load up instead would be
// twice the time.
TEST(NeverSlower, in_a_pool_of_its_own_size_on_a_disk_with_hiccups) {
  const uint64_t seed = base_seed();
  SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(seed));
  const DiskSpeed disk{60e6, 200e-6};
  const Model model{"4 KiB, 20,000/s", 32, 20e3};
  double seconds[2] = {};
  uint64_t loaded[2] = {};
  for (uint64_t round = 0; round < 4; ++round) {
    for (const bool tight : {false, true}) {
      TimedWorld timed(seed + round, model, {.disk = &disk}, {.pages = tight ? 516u : 1200u});
      const std::vector<Ask> asks(4, Ask{8192, 32});
      const std::vector<Asked> asked = ask_each(timed, asks, [&](size_t) {
        timed.world().disk().faults.stall = 0.03;
        timed.world().disk().faults.stall_time = std::chrono::milliseconds(150);
      });
      for (const Asked& one : asked) {
        seconds[tight] += one.seconds();
        loaded[tight] += one.client->usage().nvme_tokens;
      }
    }
  }
  std::printf("hiccups: %.3f s and %llu tokens loaded, in a tight pool %.3f s and %llu\n",
              seconds[0], static_cast<unsigned long long>(loaded[0]), seconds[1],
              static_cast<unsigned long long>(loaded[1]));
  EXPECT_LE(seconds[1], 1.3 * seconds[0]);
}

// A disk changes its speed tenfold while nobody asks. One that got slower is known at once: by its
// silence. Of one that got faster it is the front that was computed which cannot be taken back: at
// most one step of 256 tokens (kComputeAhead of tier_load.cc) comes on top, and after five requests
// none.
TEST(NeverSlower, by_more_than_a_step_while_it_learns_that_a_disk_changed_its_speed) {
  constexpr uint32_t kAfter = 6, kStep = 256;
  const uint64_t seed = base_seed();
  SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(seed));
  double worst[2][kAfter] = {};
  for (const Model& model : kModels) {
    for (const double slow : {100e6, 700e6}) {
      for (const bool faster : {false, true}) {
        for (const Ask& ask : {Ask{2048, 32}, Ask{8192, 1024}}) {
          const DiskSpeed before{faster ? slow : 10 * slow, 200e-6};
          const DiskSpeed after{faster ? 10 * slow : slow, 200e-6};
          TimedWorld timed(seed, model, {.disk = &before});
          const std::vector<Ask> asks(1 + kAfter, ask);
          const std::vector<Asked> asked = ask_each(timed, asks, [&](size_t next) {
            if (next == 1) timed.world().disk().faults = faults_of(after);
          });
          ASSERT_EQ(asked.size(), asks.size());
          const double best_s = bound_of(model, after, ask).best_s;
          const double step_s = model.step_s(0, kStep) + model.overhead_s();
          for (uint32_t i = 0; i < kAfter; ++i) {
            const double took_s = asked[1 + i].seconds();
            worst[faster][i] = std::max(worst[faster][i], took_s / best_s);
            EXPECT_LE(took_s, 1.05 * best_s + (faster && i + 1 < kAfter ? step_s : 0))
                << model.name << ", from " << before.bytes_per_s / 1e6 << " to "
                << after.bytes_per_s / 1e6 << " MB/s, " << ask.prefix << " + " << ask.suffix
                << ", request " << i + 1;
          }
        }
      }
    }
  }
  for (const bool faster : {false, true}) {
    std::printf("a disk gets ten times %s: worst", faster ? "faster" : "slower");
    for (const double ratio : worst[faster]) std::printf(" %.2f", ratio);
    std::printf("\n");
  }
}

// Host memory: the device copies from it, one page after the other.
TEST(NeverSlower, than_the_faster_of_copy_from_host_memory_and_recompute) {
  const uint64_t seed = base_seed();
  SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(seed));
  constexpr Model kFast{"8 KiB, 2,000,000/s", 64, 2e6};  // 16 GB of KV a second
  double worst = 0;
  for (const Model& model : {kModels[1], kFast}) {
    for (const double rate : {1e9, 5e9, 12e9, 25e9, 50e9}) {
      TimedWorld timed(seed, model, {.host_bytes_per_s = rate, .host_pages = 1024});
      const std::vector<Asked> asked = ask_each(timed, kAsks);
      ASSERT_EQ(asked.size(), std::size(kAsks));
      for (size_t i = 0; i < asked.size(); ++i) {
        const Ask& ask = kAsks[i];
        const double compute_s = model.compute_s(0, ask.prefix + ask.suffix);
        const double load_s = ask.prefix * model.token_bytes() / rate +
                              model.compute_s(ask.prefix, ask.prefix + ask.suffix);
        const double best_s = std::min(compute_s, load_s);
        const double took_s = asked[i].seconds();
        worst = std::max(worst, took_s / best_s);
        EXPECT_LE(took_s, 1.05 * best_s)
            << model.name << ", " << rate / 1e9 << " GB/s, " << ask.prefix << " + " << ask.suffix
            << ": computed " << asked[i].client->usage().computed_tokens << ", from host memory "
            << asked[i].client->usage().host_tokens << ", recompute " << compute_s * 1e3
            << " ms, load " << load_s * 1e3 << " ms, took " << took_s * 1e3;
      }
    }
  }
  std::printf("host memory: worst %.3f\n", worst);
}

// A part of the prefixes is in host memory as well: against a run that loads all there is.
TEST(NeverSlower, than_the_faster_way_from_two_tiers_at_once) {
  const uint64_t seed = base_seed();
  SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(seed));
  const Model& model = kModels[1];
  double worst = 0;
  uint64_t from_host = 0, from_nvme = 0;
  for (const double rate : {100e6, 500e6, 2e9, 7e9}) {
    const DiskSpeed disk{rate, 200e-6};
    Below below{.disk = &disk, .host_bytes_per_s = 10e9, .host_pages = 300};
    TimedWorld timed(seed, model, below);
    const std::vector<Asked> asked = ask_each(timed, kAsks);
    below.load_all = true;
    TimedWorld loading(seed, model, below);
    const std::vector<Asked> loaded = ask_each(loading, kAsks);
    ASSERT_EQ(asked.size(), std::size(kAsks));
    ASSERT_EQ(loaded.size(), std::size(kAsks));
    for (size_t i = 0; i < asked.size(); ++i) {
      const Usage& usage = loaded[i].client->usage();
      from_host += usage.host_tokens;
      from_nvme += usage.nvme_tokens;
      const double compute_s = model.compute_s(0, kAsks[i].prefix + kAsks[i].suffix);
      const double best_s = std::min(compute_s, loaded[i].seconds());
      const double took_s = asked[i].seconds();
      worst = std::max(worst, took_s / best_s);
      EXPECT_LE(took_s, 1.05 * best_s)
          << rate / 1e6 << " MB/s, " << kAsks[i].prefix << " + " << kAsks[i].suffix << ": "
          << usage.host_tokens << " in host memory, " << usage.nvme_tokens
          << " on NVMe alone; took " << took_s * 1e3 << " ms, load " << loaded[i].seconds() * 1e3
          << ", recompute " << compute_s * 1e3;
    }
  }
  EXPECT_GT(from_host, 1000u);
  EXPECT_GT(from_nvme, 1000u);
  std::printf("two tiers: worst %.3f\n", worst);
}

// Of four streams that decode: until all have ended, and the longest that one of them waited for a
// token, while a prompt comes that has a long prefix on a disk.
struct Streams {
  double all_s = 0, longest_gap_s = 0;
};

Streams streams_beside(uint64_t seed, const Model& model, const DiskSpeed* disk) {
  TimedWorld timed(seed, model, {.disk = disk});
  std::vector<Asked> streams;
  std::vector<std::function<void()>> stages;
  if (disk != nullptr) {
    stages.push_back([&] { timed.ask({4096, 0}); });
    for (uint32_t i = 0; i < kWarmUps; ++i) {
      stages.push_back([&] {
        timed.world().forget_on_device();
        timed.ask({4096, 32});
      });
    }
  }
  stages.push_back([&] {
    timed.world().forget_on_device();
    for (int i = 0; i < 4; ++i) streams.push_back(timed.ask({0, 16}, 300));
    timed.ask({4096, 32});
  });
  timed.world().run_idle_stages(std::move(stages));
  Streams result;
  for (const Asked& stream : streams) {
    const auto gap = std::chrono::duration<double>(stream.client->longest_gap()).count();
    result.all_s = std::max(result.all_s, stream.seconds());
    result.longest_gap_s = std::max(result.longest_gap_s, gap);
  }
  return result;
}

TEST(NeverSlower, streams_beside_a_load_keep_their_time_per_token) {
  const uint64_t seed = base_seed();
  SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(seed));
  const Model& model = kModels[1];
  const Streams without = streams_beside(seed, model, nullptr);
  for (const double rate : kDisks) {
    const DiskSpeed disk{rate, 500e-6};
    const Streams with = streams_beside(seed, model, &disk);
    std::printf(
        "%g MB/s: streams end after %.1f ms (without tiers %.1f), longest gap %.2f (%.2f)\n",
        rate / 1e6, with.all_s * 1e3, without.all_s * 1e3, with.longest_gap_s * 1e3,
        without.longest_gap_s * 1e3);
    EXPECT_LE(with.all_s, 1.01 * without.all_s) << rate;
    EXPECT_LE(with.longest_gap_s, 1.05 * without.longest_gap_s) << rate;
  }
}

// A turn costs the copies of whole pages and a few tokens, not a part of the answer again.
TEST(NeverSlower, streams_that_take_turns_compute_little_again) {
  const uint64_t seed = base_seed();
  SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(seed));
  constexpr uint32_t kStreams = 12, kPrompt = 192, kAnswer = 200, kPageTokens = 16;
  constexpr uint32_t kPages = 4 * ((kPrompt + kAnswer) / kPageTokens + 1);  // for four of them
  const DiskSpeed disk{2e9, 80e-6};
  TimedWorld timed(seed, kModels[0], {.disk = &disk}, {.pages = kPages});
  for (uint32_t i = 0; i < kStreams; ++i) timed.ask({0, kPrompt}, kAnswer);
  timed.world().run_to_end();
  const EngineStats stats = timed.world().steps().stats();
  const uint64_t again =
      timed.world().runner().rows() - uint64_t{kStreams} * (kPrompt + kAnswer - 1);
  std::printf("%llu turns, %llu swapped out, %llu tokens computed again\n",
              static_cast<unsigned long long>(stats.turns),
              static_cast<unsigned long long>(stats.preemptions),
              static_cast<unsigned long long>(again));
  EXPECT_GT(stats.turns, kStreams);
  EXPECT_LE(again, stats.preemptions * kPageTokens / 2);
}

}  // namespace
}  // namespace spillway::scheduler
