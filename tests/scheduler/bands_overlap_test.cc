// What bands are for: a prefix of 6,000 tokens that comes from a disk and 1,000 new ones behind it
// take hardly longer together than the longer of the two alone (issue 4), in simulated time.
//
// SPILLWAY_SIM_TABLE=1 prints the table of docs/BENCHMARKS.md.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tests/scheduler/timed_world.h"

namespace spillway::scheduler {
namespace {

constexpr Ask kAsk{6000, 1000};
constexpr Model kModel{"16 KiB, 20,000/s", 128, 20e3};  // pages of 256 KiB, in 8 bands
constexpr uint32_t kWarmUps = 3;                        // that tell the rates

struct Timed {
  double alone_s = 0;  // the new tokens, with their prefix on the device
  double both_s = 0;
  cache::TiersStats tiers;
};

Timed time_of(const DiskSpeed& disk, cache::BandLoads bands) {
  TimedWorld timed(base_seed(), kModel, {.disk = &disk},
                   {.pages = 460, .step_tokens = 1024, .bands = bands});
  std::vector<Asked> asked;
  std::vector<std::function<void()>> stages;
  stages.push_back([&] { timed.ask({kAsk.prefix, 0}); });
  for (uint32_t i = 0; i < kWarmUps; ++i) {
    stages.push_back([&] {
      timed.world().forget_on_device();
      timed.ask(kAsk);
    });
  }
  stages.push_back([&] { asked.push_back(timed.ask(kAsk)); });
  stages.push_back([&] {
    timed.world().forget_on_device();
    asked.push_back(timed.ask(kAsk));
  });
  timed.world().run_idle_stages(std::move(stages));
  return {asked[0].seconds(), asked[1].seconds(), timed.world().tiers_stats()};
}

TEST(BandsOverlap, a_load_and_its_suffix_take_hardly_longer_than_the_longer_alone) {
  const bool table = std::getenv("SPILLWAY_SIM_TABLE") != nullptr;
  SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(base_seed()));
  const double suffix_s = kModel.step_s(kAsk.prefix, kAsk.suffix) + kModel.overhead_s();
  std::vector<double> loads{0.5, 1.0, 2.0};
  if (table) loads = {0.25, 0.5, 1.0, 1.5, 2.0};
  for (const double of_suffix : loads) {
    SCOPED_TRACE("a load of " + std::to_string(of_suffix) + " of the suffix's time");
    const DiskSpeed disk{kAsk.prefix * kModel.token_bytes() / (of_suffix * suffix_s), 80e-6};
    const double load_s = disk.load_s(kModel, kAsk.prefix);
    const Timed by_bands = time_of(disk, cache::BandLoads::kAuto);
    const double longer_s = std::max(load_s, by_bands.alone_s);
    EXPECT_LE(by_bands.both_s, 1.15 * longer_s);
    EXPECT_GT(by_bands.tiers.steps_under_load, 0u);
    EXPECT_EQ(by_bands.tiers.steps_in_vain, 0u);
    if (of_suffix != 1 && !table) continue;
    const Timed by_pages = time_of(disk, cache::BandLoads::kOff);
    EXPECT_EQ(by_pages.tiers.steps_under_load, 0u);
    EXPECT_LT(by_bands.both_s, by_pages.both_s);
    if (table) {
      std::printf("| %.0f | %.1f | %.1f | %.1f | %.2f | %.1f | %.2f |\n", disk.bytes_per_s / 1e6,
                  load_s * 1e3, by_bands.alone_s * 1e3, by_bands.both_s * 1e3,
                  by_bands.both_s / longer_s, by_pages.both_s * 1e3, by_pages.both_s / longer_s);
    }
  }
}

}  // namespace
}  // namespace spillway::scheduler
