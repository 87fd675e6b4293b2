// The real cache, tiers and block store over a simulated device, disk and clock, for tests that
// tell one story: prompts that are answered and kept, records that are looked at, and events one
// by one.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/tiers.h"
#include "cache_fixture.h"
#include "runtime/clock.h"
#include "runtime/engine_loop.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_disk.h"

namespace spillway::cache {

struct TiersWorldOptions {
  CacheShape cache{};
  std::vector<uint32_t> host{};  // [group] pages; empty: no host tier
  uint64_t nvme_bytes = 1u << 20;
  size_t staging_pages = 64;
  uint64_t load_bytes_max = 8u << 20;
  WritePolicy write = WritePolicy::kAuto;
  uint64_t seed = 1;
};

class TiersWorld {
 public:
  explicit TiersWorld(const TiersWorldOptions& options);
  ~TiersWorld();

  // A prompt that is being answered; its tokens and pages are there until it is kept or dropped.
  struct Asked {
    std::vector<TokenId> prompt;
    PromptKeys keys;
    TestSequence real;
    std::shared_ptr<Load> load;  // null: nothing comes up
  };
  Asked begin(const std::vector<TokenId>& prompt);
  // Until nothing of its load is under way.
  void bring_up(const Asked& asked);
  // Takes what has been loaded, and computes the rest of the prompt. The load must be over.
  void compute(Asked& asked);
  void keep(const Asked& asked, bool running = false);
  void release(Asked asked);
  // All of these: loads what there is, computes the rest, keeps the path until it is written, and
  // lets the device forget it. Returns the pages that came up.
  uint32_t ask(const std::vector<TokenId>& prompt);
  void forget() { real_->cache().clear(); }

  // One piece of work, or the end of one operation. False: only time can go on.
  bool step();
  // Until the condition holds. False: nothing would ever make it so.
  bool run_until(const std::function<bool()>& condition);
  // REQUIRES: no load is left that nobody has taken or given up.
  void settle() {
    run_until([] { return false; });
  }
  void restart();

  // (position, group) of each of this prompt's pages that the store holds.
  using Records = std::set<std::pair<uint32_t, uint32_t>>;
  Records records(const std::vector<TokenId>& prompt) const;
  uint64_t stored() const { return tiers_->stats().nvme.pages; }
  // The store loses that page, and nobody knows yet.
  void lose(const std::vector<TokenId>& prompt, uint32_t position, uint32_t group = 0);

  TestCache& cache() { return *real_; }
  Tiers& tiers() { return *tiers_; }
  io::BlockStore& store() { return *store_; }
  sim::SimDisk& disk() { return *disk_; }
  sim::SimDevice& device() { return device_; }

 private:
  void open();
  void close();
  void run(Task<> task);
  Task<> open_store();

  const TiersWorldOptions options_;
  SimulatedClock clock_;
  sim::SimDevice device_;
  sim::SimParker parker_;
  EngineLoop loop_;
  sim::SimFiles files_;
  std::vector<kernels::DeviceMemory> memory_;
  std::unique_ptr<sim::SimDisk> disk_;
  std::unique_ptr<io::BlockStore> store_;
  std::unique_ptr<TestCache> real_;
  std::unique_ptr<Tiers> tiers_;
  bool idle_ = false;
};

}  // namespace spillway::cache
