// The real cache, tiers and block store over a simulated device, disk and clock, for tests that
// tell one story: prompts that are answered and kept, records that are looked at, and events one
// by one.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tiers_machine.h"

namespace spillway::cache {

class TiersWorld {
 public:
  explicit TiersWorld(const TiersShape& shape, uint64_t seed = 1);
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
  void forget() { cache().cache().clear(); }

  // Until the condition holds. False: nothing would ever make it so.
  bool run_until(const std::function<bool()>& condition);
  // So long, and then until nothing is ready any more.
  void pass(Clock::Duration time);
  // Until nothing will ever happen by itself; where pages are scrubbed, for a moment.
  // REQUIRES: no load is left that nobody has taken or given up.
  void settle();
  void restart(const std::string& fingerprint = "test model");
  // What the end of a process begins with; restart() does the rest.
  void close_tiers();

  // (position, group) of each of this prompt's pages that the store holds.
  using Records = std::set<std::pair<uint32_t, uint32_t>>;
  Records records(const std::vector<TokenId>& prompt) const;
  uint64_t stored() const { return machine_.tiers().stats().nvme.pages; }
  // The store loses that page, and nobody knows yet.
  void lose(const std::vector<TokenId>& prompt, uint32_t position, uint32_t group = 0);
  // The position of that page of the prompt which lies before the others of the full group.
  uint32_t first_by_slot(const std::vector<TokenId>& prompt) const;
  // A bit of that page flips on disk.
  void rot(const std::vector<TokenId>& prompt, uint32_t position, uint32_t group = 0);

  TestCache& cache() { return machine_.cache(); }
  Tiers& tiers() { return machine_.tiers(); }
  io::BlockStore& store() { return *machine_.store(); }
  sim::SimDisk& disk() { return *machine_.disk(); }
  TiersMachine& machine() { return machine_; }

  SimulatedClock& clock() { return machine_.clock(); }

 private:
  void open(const std::string& fingerprint);
  Task<> sleep(Clock::Duration time);
  void close();
  // Its place in the store.
  std::pair<io::SlotId, uint64_t> stored_at(const std::vector<TokenId>& prompt, uint32_t position,
                                            uint32_t group);

  const TiersShape shape_;
  TiersMachine machine_;
};

// A prompt of so many whole pages and the token behind them.
std::vector<TokenId> prompt_of(uint32_t pages, uint32_t seed = 0);
// The first `pages` positions of the full group, but those.
TiersWorld::Records all_but(uint32_t pages, const std::set<uint32_t>& lost = {});

}  // namespace spillway::cache
