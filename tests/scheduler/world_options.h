// What a simulated world of the engine (engine_world.h) is like, and the seed it begins with.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include "cache/eviction_policy.h"
#include "cache/tiers.h"
#include "io/ring.h"
#include "kernels/device.h"
#include "kernels/page_codec.h"
#include "tests/scheduler/sim_client.h"
#include "tests/sim/sim_disk.h"

namespace spillway::scheduler {

inline uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

// The first run's. A run's options come from its seed, so that the seed alone repeats it.
inline uint64_t base_seed() { return from_environment("SPILLWAY_SIM_SEED", 1); }

struct WorldOptions {
  uint64_t seed = 1;
  uint32_t pages = 60;
  uint32_t window = 0;
  uint32_t step_tokens = 64;
  uint32_t sequences = 8;
  uint32_t preempt_every = 0;
  bool prefix_caching = true;
  cache::EvictionPolicyKind eviction_policy = cache::EvictionPolicyKind::kValue;
  uint32_t host_pages = 0;         // of each group; 0: no host tier
  sim::SimFiles* files = nullptr;  // outlives the world; null: no NVMe tier
  uint64_t nvme_bytes = 4u << 20;
  sim::SimDiskFaults faults{};
  cache::WritePolicy write = cache::WritePolicy::kAuto;
  cache::KeyMode key_mode = cache::KeyMode::kHash;
  std::string fingerprint = "fake";
  bool take_turns = true;
  double pin_share = 0.25;
  uint32_t pin_tenants = 1;
  uint64_t load_bytes_max = 8u << 20;
  size_t staging_bytes = 64u << 10;
  uint32_t layers = 1;  // of the model: pages of 2 KiB each, at least 4
  kernels::PageCodec codec = kernels::PageCodec::kIdentity;
  size_t codec_bytes = 64u << 10;  // of buffers in each direction, of each tier
  kernels::PageCodec host_codec = kernels::PageCodec::kIdentity;
  bool holds = false;                    // clients mark static parts, pin, ask how it goes
  bool flood = false;                    // a tenant that sends prompts nobody sends again
  uint32_t looks_an_event = 3;           // of random clients: the more, the fewer run at once
  bool long_prompts = false;             // all of them up to 300 tokens
  std::chrono::nanoseconds step_time{};  // that a look at the device takes at least
  bool watch_operations = false;         // look at what is enqueued, before each operation
  bool faults_to_the_end = true;         // else the disk is well again when the tiers are closed
  bool trace = false;                    // records a timeline
  bool control_thrash = true;
  bool load_all = false;
  uint32_t context = kContext;  // tokens that a sequence may have
  cache::BandLoads bands = cache::BandLoads::kAuto;
  bool gates = true;        // the device has them
  bool own_memory = false;  // that nobody else may touch
  // Null: the simulated device. Else that one, which outlives the world, takes its place, and
  // goes on when run_device is called (SimParker); and who ends with an error is told of this.
  kernels::Device* device = nullptr;
  std::function<bool()> run_device = nullptr;
  std::string device_error = "";
  uint32_t band_bytes_min = io::kSectorBytes;            // of a band in the store
  std::chrono::nanoseconds scrub_pause{}, scrub_rest{};  // 0: nothing is scrubbed
  bool clear_at_end = true;  // the lower tiers; else the store keeps its pages for another world
};

// Worlds of neighbouring seeds differ in this: windows, room, lengths of steps, who goes first.
inline WorldOptions options_of_seed(uint64_t seed) {
  WorldOptions options;
  options.seed = seed;
  options.window = seed % 2 == 0 ? 0 : 20 + 13 * static_cast<uint32_t>(seed % 7);
  options.pages = 40 + 7 * static_cast<uint32_t>(seed % 5);
  options.step_tokens = 32u << (seed % 3);
  options.sequences = 3 + static_cast<uint32_t>(seed % 9);
  options.preempt_every = seed % 5 == 4 ? 17 : 0;
  options.eviction_policy = static_cast<cache::EvictionPolicyKind>(seed % 3);
  return options;
}

}  // namespace spillway::scheduler
