// Commands for the cache: each runs on the real one and on the naive model, and then everything
// that can be seen is compared and every invariant checked. The model test generates commands, the
// fuzz target decodes them from bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache_fixture.h"
#include "naive_cache.h"

namespace spillway::cache {

enum class Op : uint8_t {
  kBegin,     // a prompt of pattern b and length c, for tenant a
  kContinue,  // a prompt that goes on from an ended or running sequence's tokens
  kExtend,    // the engine's step: reserve, write, commit
  kReserve,   // a step planned and then given up: pages reserved, nothing written
  kFork,
  kRelease,  // end or abort, in whatever state
  kHold,     // release into a session
  kEndSession,
  kBreakpoint,
  kPreempt,  // release, then begin again with all tokens known
  kClear,
  kPinPrefix,  // of an ended sequence's tokens
  kUnpinPrefix,
  kCount,
};

struct Command {
  Op op{};
  uint8_t a = 0, b = 0, c = 0;
};

class CommandDriver {
 public:
  explicit CommandDriver(const CacheShape& shape);
  ~CommandDriver();

  // Runs the command; false if there is nothing to run it on. Throws std::logic_error where the
  // cache is not what the model says.
  bool run(const Command& command);
  // Ends everything; the cache must be as on the first day.
  void finish();

 private:
  struct Live {
    TestSequence real;
    NaiveCache::Handle naive;
    std::vector<TokenId> pending;  // of the prompt, to compute
  };

  void begin(const std::string& tenant, const std::vector<TokenId>& prompt,
             uint32_t cached_max = UINT32_MAX);
  void extend(Live& live, const Command& command);
  void fork(Live& live);
  void release(size_t index, const std::string& session);
  void preempt(size_t index);
  void pin_prefix(const std::string& name, const Command& command);
  void compare_counts() const;
  void compare_match(const std::string& tenant, const std::vector<TokenId>& tokens) const;
  void compare_all();
  void check_version();

  TestCache real_;
  NaiveCache naive_;
  std::vector<std::unique_ptr<Live>> live_;
  // (tenant, tokens) of sequences that ended, the latest last
  std::vector<std::pair<std::string, std::vector<TokenId>>> ended_;
  uint64_t version_ = 0;
  std::vector<uint32_t> probes_;  // what peek() said of some prompts at that version
};

// Runs them all and finishes; the first difference, or nothing. A broken cache is leaked.
std::optional<std::string> run_commands(const CacheShape& shape, std::span<const Command> commands);

}  // namespace spillway::cache
