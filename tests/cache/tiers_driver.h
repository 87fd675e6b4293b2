// Commands for cache and tiers together: the real KvCache, Tiers and BlockStore over a simulated
// device, disk and clock, driven as the engine drives them, with any number of events between two
// commands, so that each finds transfers in any state.
//
// The model is what may be found where: a page's bytes follow from its namespace and prefix alone,
// a lower tier may hold a page only of a path that was kept there, and what is idle is the
// baseline.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/prng.h"
#include "tiers_machine.h"

namespace spillway::cache {

enum class TierOp : uint8_t {
  kBegin,     // a prompt of pattern b and length c, for tenant a; its load begins
  kContinue,  // a prompt that goes on from an ended sequence's tokens
  kStep,      // the engine's step, of up to c rows: as far as the sequence may compute
  kAdopt,     // takes what has been loaded
  kGiveUp,    // a load that is cancelled
  kFork,
  kRelease,  // end or abort, in whatever state; its path is kept
  kDrop,     // the same, and its path is not kept
  kHold,     // release into a session, its path kept as the session's
  kEndSession,
  kPreempt,  // swap-out: release, and begin again with all tokens known
  kKeep,     // of a running sequence, ahead of its swap-out
  kEvents,   // up to a events of device, disk and loop
  kTime,     // c * c milliseconds go by
  kSettle,   // until nothing is in flight
  kForget,   // the device loses all that nobody holds
  kClear,    // perhaps after kSettle
  kFault,    // of kind a from now on, in every other run
  kHeal,     // no faults from now on
  kRestart,  // everything is closed and opened again, perhaps by another model
  kKill,     // the process, or the power, is cut off here; then as kRestart
  kCount,
};

struct TierCommand {
  TierOp op{};
  uint8_t a = 0, b = 0, c = 0;
};

class TiersDriver {
 public:
  TiersDriver(const TiersShape& shape, uint64_t seed);
  ~TiersDriver();  // REQUIRES: finish() has returned

  // False if there is nothing to run it on. Throws std::logic_error where what is seen may not be.
  bool run(const TierCommand& command);
  void finish();

  uint64_t loaded_pages() const { return loaded_pages_; }
  uint64_t stored_pages() const { return stored_pages_; }
  uint64_t checked_paths() const { return checked_paths_; }

 private:
  struct Live {
    TestSequence real;
    std::vector<TokenId> prompt;  // all tokens known
    PromptKeys keys;              // of `prompt`
    std::shared_ptr<Load> load;
  };
  using Path = std::vector<TokenId>;  // whole pages

  KvCache& cache() { return machine_.cache().cache(); }
  const KvCache& cache() const { return machine_.cache().cache(); }
  Tiers& tiers() { return machine_.tiers(); }
  const Tiers& tiers() const { return machine_.tiers(); }

  // tiers_driver.cc
  void open();
  void close(std::optional<sim::Crash> crash);
  void pass_time(Clock::Duration time);
  void settle();
  void begin(const std::string& tenant, const std::vector<TokenId>& prompt, double price);
  bool compute(Live& live, const TierCommand& command);
  void step(size_t index, const TierCommand& command);
  void adopt(Live& live);
  void give_up(Live& live);
  void fork(Live& live);
  void keep(Live& live, bool session, bool running);
  void release(size_t index, const std::string& session, bool kept);
  void preempt(size_t index, double price);
  void clear(bool all);
  void fault(uint8_t kind);
  void restart(const TierCommand& command);

  // tiers_driver_checks.cc
  void watch() const;
  void check_match(const std::string& tenant, const std::vector<TokenId>& tokens) const;
  uint32_t known_pages(const std::string& tenant, const std::vector<TokenId>& tokens) const;
  void check_kept_path();
  uint64_t lost_pages() const;
  void check_records() const;
  void check_counts() const;
  bool has_windows() const;
  bool is_quiet() const;
  PageCounts held_by_loads() const;
  void check_quiet();
  void check_baseline();
  void check_all();

  const TiersShape shape_;
  Prng prng_;
  const bool has_faults_;  // half of the runs have none: then more is known
  TiersMachine machine_;
  std::string fingerprint_ = "test model";
  std::vector<std::unique_ptr<Live>> live_;
  bool faulty_ = false;    // since the store was opened
  bool damaged_ = false;   // the files, by a disk that lied
  bool clearing_ = false;  // what was cleared may still be held by transfers
  TiersStats closed_;      // as the last process of each kind left it
  bool closed_well_ = false;

  // (tenant, tokens) of sequences that ended, the latest last
  std::vector<std::pair<std::string, std::vector<TokenId>>> ended_;
  // Paths that lower tiers may hold, by model and tenant.
  std::map<std::pair<std::string, std::string>, std::set<Path>> kept_, erased_;
  // The path that was kept last, whether its sequence went on, and what tiers had lost or left out
  // by then.
  std::string kept_tenant_;
  Path kept_path_;
  bool kept_running_ = false;
  uint64_t lost_before_ = 0;
  uint64_t checked_paths_ = 0;
  uint64_t loaded_pages_ = 0, stored_pages_ = 0;
};

// Throws std::logic_error(what).
void require(bool condition, const char* what);

// Runs them all and finishes; the first difference, or nothing. A broken world is leaked. `loaded`
// and `stored`, pages, show that a run was about something.
struct TiersRun {
  std::optional<std::string> problem;
  uint64_t loaded = 0, stored = 0, checked_paths = 0;
};
TiersRun run_tier_commands(const TiersShape& shape, std::span<const TierCommand> commands);

}  // namespace spillway::cache
