// A simulated machine: clock, device and disk, and on it one process at a time with cache, block
// store and tiers. What a process had in memory goes with it; its files stay.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/tiers.h"
#include "cache_fixture.h"
#include "runtime/clock.h"
#include "runtime/engine_loop.h"
#include "runtime/prng.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_workers.h"

namespace spillway::cache {

struct TiersShape {
  CacheShape cache{};
  std::vector<uint32_t> host{};    // [group] pages; empty: no host tier
  uint64_t nvme_bytes = 1u << 20;  // 0: no NVMe tier
  size_t staging_pages = 64;
  uint64_t load_bytes_max = 8u << 20;
  WritePolicy write = WritePolicy::kAuto;
  BandLoads bands = BandLoads::kAuto;
  std::chrono::nanoseconds scrub_pause{}, scrub_rest = std::chrono::hours(1);
  uint32_t band_bytes_min = io::BlockStoreOptions{}.band_bytes_min;
  kernels::PageCodec host_codec = kernels::PageCodec::kIdentity;
  kernels::PageCodec nvme_codec = kernels::PageCodec::kIdentity;
  size_t codec_pages = 8;  // of buffers, each way
};

class TiersMachine {
 public:
  TiersMachine(const TiersShape& shape, uint64_t seed);
  // REQUIRES: no process is there. Who has found one broken leaks the machine.
  ~TiersMachine();

  // A process starts, of this model.
  void open(const std::string& fingerprint = "test model");
  void close_tiers();  // the first of what close() does
  // It ends; `last_look` sees its parts when none of them does anything any more.
  // REQUIRES: all sequences were released.
  void close(const std::function<void()>& last_look);

  // One piece of work, or the end of one operation: of device or disk, as the seed has it. False:
  // only time can go on.
  bool step();
  // Lets time go on to what comes next. False: nothing will ever happen by itself.
  bool park();
  bool go_on() { return step() || park(); }
  void run(Task<> task);  // until it has ended
  // They refuse nothing at first.
  sim::SimWorkers& workers() { return workers_; }
  const sim::SimWorkers& workers() const { return workers_; }
  // The host tier's memory. REQUIRES: there is one.
  std::span<std::byte> host_memory(uint32_t group) const {
    const kernels::DeviceMemory& memory = memory_[first_host_ + group];
    return {memory.data, memory.bytes};
  }
  // Called before each of these, to look at what is under way.
  std::function<void()> before_event = [] {};

  TestCache& cache() { return *cache_; }
  const TestCache& cache() const { return *cache_; }
  Tiers& tiers() { return *tiers_; }
  const Tiers& tiers() const { return *tiers_; }
  io::BlockStore* store() const { return store_.get(); }  // null: there is no NVMe tier
  sim::SimDisk* disk() const { return disk_.get(); }      // the same
  sim::SimDevice& device() { return device_; }
  const sim::SimDevice& device() const { return device_; }
  SimulatedClock& clock() { return clock_; }
  EngineLoop& loop() { return loop_; }

 private:
  Task<> open_store();
  std::span<std::byte> buffers(size_t bytes);

  const TiersShape shape_;
  const uint64_t seed_;
  Prng prng_;
  SimulatedClock clock_;
  sim::SimDevice device_;
  sim::SimParker parker_;
  EngineLoop loop_;
  sim::SimWorkers workers_;
  sim::SimFiles files_;
  bool idle_ = false;
  uint64_t opened_ = 0;  // processes
  bool tiers_closed_ = false;

  std::vector<kernels::DeviceMemory> memory_;
  size_t first_host_ = 0;  // in it
  std::unique_ptr<sim::SimDisk> disk_;
  std::unique_ptr<io::BlockStore> store_;
  std::unique_ptr<TestCache> cache_;
  std::unique_ptr<Tiers> tiers_;
};

}  // namespace spillway::cache
