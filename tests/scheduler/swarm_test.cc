// Swarm testing (Groce et al., ISSTA 2012): each seed draws which features and faults its run has
// at all, so that rare ones meet each other undiluted. The real engine, cache, tiers and store run
// on a simulated device, disk and clock, through up to three lives with a kill between them.
// Whatever happens, every answer is that of a run without any cache, every invariant holds at each
// look, and once the faults are off everything is back at its baseline.
//
//   SPILLWAY_SIM_SEEDS=N  how many seeds (tools/simulate --seeds N)
//   SPILLWAY_SIM_SEED=S   the first of them (tools/simulate --from S); the same seed, the same run
#include "tests/scheduler/engine_world.h"

namespace spillway::scheduler {
namespace {

void draw_faults(Prng& rng, sim::SimDiskFaults& faults) {
  const auto maybe = [&rng](double most) { return rng.below(4) == 0 ? rng.uniform() * most : 0.0; };
  faults.latency_max = std::chrono::microseconds(20 + rng.below(20000));
  if (rng.below(3) == 0) faults.bytes_per_s = 1e6 * static_cast<double>(1 + rng.below(500));
  faults.reorder = rng.below(4) != 0;
  if (rng.below(2) == 0) return;  // a disk that only takes its time
  faults.stall = maybe(0.02);
  faults.read_error = maybe(0.3);
  faults.short_read = maybe(0.2);
  faults.bit_rot = maybe(0.3);
  faults.write_error = maybe(0.3);
  faults.no_space = maybe(0.3);
  faults.torn_write = maybe(0.3);
  faults.lost_write = maybe(0.3);
  faults.misdirected_write = maybe(0.3);
  faults.failed_sync = maybe(0.2);
}

WorldOptions draw_options(Prng& rng, uint64_t seed, sim::SimFiles& files) {
  WorldOptions options;
  options.seed = seed;
  options.window = rng.below(2) == 0 ? 0 : 17 + static_cast<uint32_t>(rng.below(90));
  options.pages = 36 + static_cast<uint32_t>(rng.below(60));
  options.step_tokens = 32u << rng.below(4);
  options.sequences = 2 + static_cast<uint32_t>(rng.below(20));
  // Without a cache a preempted prompt starts anew: it must have had the steps to get through.
  const auto through = kContext / options.step_tokens + 4;
  options.preempt_every = rng.below(4) == 0 ? through + static_cast<uint32_t>(rng.below(30)) : 0;
  options.prefix_caching = rng.below(20) != 0;
  options.eviction_policy = static_cast<cache::EvictionPolicyKind>(rng.below(3));
  options.host_pages = rng.below(3) == 0 ? 2 + static_cast<uint32_t>(rng.below(120)) : 0;
  options.files = rng.below(6) == 0 ? nullptr : &files;
  options.nvme_bytes = (256u << 10) << rng.below(6);
  options.write = static_cast<cache::WritePolicy>(rng.below(8) == 0 ? rng.below(3) : 0);
  options.key_mode = rng.below(12) == 0 ? cache::KeyMode::kConstant : cache::KeyMode::kHash;
  options.take_turns = rng.below(4) != 0;
  options.flood = rng.below(3) == 0;
  options.holds = random_at(seed, 99, 0) % 4 == 0;
  options.load_bytes_max = 8192u << rng.below(8);
  options.staging_bytes = 4096u << rng.below(6);
  draw_faults(rng, options.faults);
  if (rng.below(4) == 0) {  // larger pages, which a codec can make smaller
    options.layers = 2u << rng.below(3);
    const size_t page = size_t{options.layers} << 11;
    options.staging_bytes = std::max(options.staging_bytes, page);
    options.codec_bytes = page << rng.below(5);
    options.codec = rng.below(4) == 0 ? kernels::PageCodec::kIdentity : kernels::PageCodec::kPlanes;
  }
  options.trace = seed % 8 == 3;                                 // being watched changes nothing
  if (options.layers == 1 && random_at(seed, 98, 0) % 8 == 0) {  // pages as they are, in bands
    options.layers = 4u + 2 * static_cast<uint32_t>(random_at(seed, 98, 1) % 4);
    options.staging_bytes = std::max(options.staging_bytes, size_t{options.layers} << 11);
  }
  if (options.layers > 4 && random_at(seed, 97, 0) % 2 == 0) {  // smaller pages do not shrink
    options.host_codec = kernels::PageCodec::kPlanes;
    options.host_pages = 4 + static_cast<uint32_t>(random_at(seed, 97, 1) % 60);
  }
  if (options.layers > 1) {
    options.bands = static_cast<cache::BandLoads>(random_at(seed, 98, 2) % 3);
    options.looks_an_event = 3u << (random_at(seed, 98, 3) % 7);
    options.long_prompts = random_at(seed, 98, 4) % 2 == 0;
    if (random_at(seed, 98, 5) % 2 == 0) {  // a quick disk, and who waits for it is often alone
      options.sequences = 1 + static_cast<uint32_t>(random_at(seed, 98, 8) % 3);
      options.pages = 30 + static_cast<uint32_t>(random_at(seed, 98, 9) % 20);
      options.step_time = std::chrono::microseconds(random_at(seed, 98, 6) % 2000);
      options.faults.latency_max = std::chrono::microseconds(20 + random_at(seed, 98, 7) % 1000);
      options.nvme_bytes = std::max<uint64_t>(options.nvme_bytes, 2u << 20);
    }
  }
  if (random_at(seed, 97, 0) % 3 == 0) {
    options.scrub_pause = std::chrono::microseconds(50u << (random_at(seed, 97, 1) % 10));
    options.scrub_rest = options.scrub_pause * static_cast<int>(1 + random_at(seed, 97, 2) % 20);
  }
  return options;
}

struct Totals {
  uint64_t steps = 0, hits = 0, corrupt = 0, errors = 0, turns = 0, cached = 0;
  uint64_t under_load = 0, in_vain = 0;  // steps
  uint64_t scrubbed = 0, scrub_dropped = 0;
  uint64_t host_encoded = 0;  // pages
};

void run_seed(uint64_t seed, Totals& totals) {
  Prng rng(seed);
  sim::SimFiles files;
  WorldOptions options = draw_options(rng, seed, files);
  const uint64_t lives = options.files == nullptr ? 1 : 1 + rng.below(3);
  for (uint64_t life = 0; life < lives; ++life) {
    const bool last = life + 1 == lives;
    options.seed = seed + life * 0x9e3779b97f4a7c15u;
    options.clear_at_end = last;
    if (rng.below(6) == 0) options.fingerprint = "another";
    if (life > 0 && options.layers > 1 && rng.below(3) == 0) {  // both codecs' pages in one store
      options.codec = kernels::PageCodec::kIdentity;
    }
    World world(options);
    if (!last && rng.below(3) != 0) world.kill_after(rng.below(3000));
    world.run_random(20 + rng.below(100));
    totals.steps += world.steps().stats().steps;
    totals.turns += world.steps().stats().turns;
    totals.cached += world.cached_tokens();
    totals.hits += world.tiers_stats().host.hits + world.tiers_stats().nvme.hits;
    totals.corrupt += world.tiers_stats().nvme.corrupt;
    totals.errors += world.tiers_stats().nvme.errors;
    totals.under_load += world.tiers_stats().steps_under_load;
    totals.in_vain += world.tiers_stats().steps_in_vain;
    totals.scrubbed += world.tiers_stats().scrubbed_pages;
    totals.scrub_dropped += world.tiers_stats().scrub_dropped_pages;
    totals.host_encoded += world.tiers_stats().host_codec.decoded;
    if (testing::Test::HasFailure()) return;
  }
}

// cases K1 to K18, S1 to S7, S9 to S11, I2
TEST(Swarm, every_seed_gives_the_answers_of_a_run_without_cache) {
  const uint64_t first = base_seed();
  const uint64_t count = from_environment("SPILLWAY_SIM_SEEDS", 100);
  Totals totals;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("to see it again: tools/simulate --seeds 1 --from " + std::to_string(seed));
    run_seed(seed, totals);
    if (testing::Test::HasFailure()) {
      std::fprintf(stderr, "failed: tools/simulate --seeds 1 --from %llu\n",
                   static_cast<unsigned long long>(seed));
      return;
    }
  }
  std::printf(
      "%llu seeds, %llu steps, %llu tokens from the cache, %llu pages from lower tiers, "
      "%llu corrupt, %llu errors, %llu turns, %llu steps under loads, %llu of them in vain, "
      "%llu pages scrubbed, %llu of them dropped, %llu pages decoded from host memory\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(totals.steps),
      static_cast<unsigned long long>(totals.cached), static_cast<unsigned long long>(totals.hits),
      static_cast<unsigned long long>(totals.corrupt),
      static_cast<unsigned long long>(totals.errors), static_cast<unsigned long long>(totals.turns),
      static_cast<unsigned long long>(totals.under_load),
      static_cast<unsigned long long>(totals.in_vain),
      static_cast<unsigned long long>(totals.scrubbed),
      static_cast<unsigned long long>(totals.scrub_dropped),
      static_cast<unsigned long long>(totals.host_encoded));
  if (count < 100) return;
  EXPECT_GT(totals.hits, count);
  if (count >= 1000) EXPECT_GT(totals.corrupt, 0u);
  EXPECT_GT(totals.errors, 0u);
  EXPECT_GT(totals.turns, 0u);
  EXPECT_GT(totals.under_load, 0u);
  EXPECT_GT(totals.scrubbed, 0u);
  if (count >= 1000) EXPECT_GT(totals.scrub_dropped, 0u);
  if (count >= 1000) EXPECT_GT(totals.in_vain, 0u);
  EXPECT_GT(totals.host_encoded, 0u);
}

}  // namespace
}  // namespace spillway::scheduler
