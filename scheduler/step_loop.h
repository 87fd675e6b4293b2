// The one step loop: takes requests in, admits, plans, runs a step on the device, hands out tokens,
// and does it again. A coroutine on the engine's loop; owns all scheduler state.
//
// Threads: push() and stats() from any thread, all else on the loop's. Commands are looked at
// between steps, so a cancelled request has returned all it held within one step.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/tiers.h"
#include "kernels/device.h"
#include "model/runner.h"
#include "model/tokenizer.h"
#include "runtime/channel.h"
#include "runtime/engine_loop.h"
#include "runtime/scope.h"
#include "runtime/stop.h"
#include "scheduler/device_pools.h"
#include "scheduler/engine.h"
#include "scheduler/held_prefixes.h"
#include "scheduler/live.h"
#include "scheduler/outcome.h"
#include "scheduler/policy.h"
#include "scheduler/session_paths.h"
#include "scheduler/step_trace.h"
#include "scheduler/thrash_control.h"

namespace spillway::scheduler {

struct SubmitCommand {
  std::unique_ptr<LiveRequest> request;  // with its first sequence, keys made
};
struct CancelCommand {
  RequestId request;
};
struct EndSessionCommand {
  std::string session;
};
struct PrefetchCommand {
  std::string session;
};
struct ResetCacheCommand {
  std::function<void(uint64_t pages)> then;
};
struct StartTraceCommand {};
struct TakeTraceCommand {  // ends what one StartTraceCommand began
  Clock::TimePoint begin;
  std::optional<std::string> tenant;  // who may see its own requests alone
  std::function<void(TraceSnapshot)> then;
};
struct ListPinsCommand {
  std::string tenant;
  std::function<void(PinList)> then;
};
struct UnpinCommand {
  std::string tenant, id;
  std::function<void(bool found)> then;
};
struct ShutDownCommand {};
// Pages arrived, or were given back, or something is over: look again.
struct TierProgressCommand {};
using Command = std::variant<SubmitCommand, CancelCommand, EndSessionCommand, PrefetchCommand,
                             ResetCacheCommand, StartTraceCommand, TakeTraceCommand,
                             ListPinsCommand, UnpinCommand, ShutDownCommand, TierProgressCommand>;

class StepLoop {
 public:
  // Who wants to know how a request goes is told after so long, and then every so often.
  static constexpr std::chrono::seconds kFirstReport{1}, kReportEvery{5};
  static constexpr size_t kPrefetchesMax = 4;  // at once

  // What it works with; all outlive it. `page_memory[g]` is what `cache` was given for group g.
  struct Parts {
    EngineLoop& loop;
    cache::KvCache& cache;
    model::Runner& runner;
    kernels::Device& device;
    const model::Tokenizer& tokenizer;
    std::vector<std::byte*> page_memory;
    cache::Tiers* tiers = nullptr;  // null: the device is the only tier
    io::Ring* ring = nullptr;       // for its figures, and new pools
    DevicePools* pools = nullptr;   // null: no other device can take the place of one that ended
  };

  StepLoop(const EngineOptions& options, const PolicyOptions& policy, Parts parts);
  // REQUIRES: run() has ended, or was never called.
  ~StepLoop();

  // False when the inbox is full (4 commands per request that may be open).
  bool push(Command&& command) { return inbox_.try_push(std::move(command)); }
  EngineStats stats() const;
  // Requests accepted and not yet done. Any thread.
  std::atomic<uint32_t>& open_requests() { return open_requests_; }

  // Until ShutDownCommand; then cancels what is open, and ends with everything returned.
  Task<> run();

 private:
  using Slot = uint32_t;

  void handle(Command command);
  void accept(std::unique_ptr<LiveRequest> request);
  void drop_ended();  // cancelled and expired requests
  LiveSequence& youngest();
  Plan make_plan();
  bool build_step();  // false: nothing can run
  Task<> run_step();
  Task<> rest();
  Task<> wait_for_command();
  void add_rows(LiveSequence& sequence, uint32_t rows);
  void take_step();  // the step that ran: commits pages, hands out tokens
  void take_samples(LiveSequence& sequence, const std::vector<model::SampleResult>& samples,
                    uint32_t first_position);

  // step_loop_admission.cc
  void admit_waiting();
  void start(LiveSequence& sequence);
  uint32_t output_left(const LiveSequence& sequence) const;
  PolicyState picture();
  cache::PageCounts pages_for_all();
  WaitingSequence picture_of(LiveSequence& sequence);
  bool leader_runs(const LiveSequence& sequence) const;

  // step_loop_bands.cc
  LiveSequence* offer_under_load(PolicyState& state) const;
  bool begin_under_load(LiveSequence& sequence, uint32_t rows);
  bool end_under_load(LiveSequence& sequence);
  void abandon_under_load(LiveSequence& sequence);

  // step_loop_held.cc
  void look_again();
  void decide_pin(LiveRequest& request);
  void keep_breakpoints(LiveSequence& sequence);
  void hold_prefixes(LiveSequence& sequence);
  void list_pins(ListPinsCommand command);
  void unpin(UnpinCommand command);
  void publish_held();

  // step_loop_prefetch.cc
  struct Prefetch {
    std::string session;
    std::vector<model::TokenId> tokens;
    std::unique_ptr<cache::Sequence> pages;  // null: it has ended
    std::shared_ptr<cache::Load> load;
  };
  void remember_session(const LiveSequence& sequence);
  void prefetch(const std::string& session);
  void advance_prefetches();
  void end_prefetch(Prefetch& prefetch);
  void cancel_prefetches(const std::string& session = {});

  // step_loop_rebuild.cc
  enum class DeviceState : uint8_t { kWorks, kClearing, kRebuilding, kAbsent };
  bool device_works();
  void lose_device();
  void replay(LiveSequence& sequence);
  void drop_lost_step();
  Task<> rebuild_device();
  void device_absent(const Error& why);
  void end_without_device();
  void try_again();

  // step_loop_reports.cc
  void wants_reports(LiveRequest& request);
  void report_waiting();
  Waiting waiting_of(const LiveRequest& request) const;

  // step_loop_sequences.cc
  std::vector<LiveSequence*> fork(LiveSequence& sequence);  // all choices, the first included
  void preempt(LiveSequence& sequence);
  void wait_again(LiveSequence& sequence);
  void insert_waiting(LiveSequence& sequence);
  void finish(LiveSequence& sequence);
  void finish_all(LiveRequest& request, FinishReason reason, const std::string& error = {});
  void drop_step();  // the step that failed: ends the requests that were in it
  void release_pages(LiveSequence& sequence, bool keep_for_session);
  void sweep();  // what has ended leaves the lists, and its client gets the last word

  // step_loop_tiers.cc
  double compute_price() const;
  void begin_load(LiveSequence& sequence);
  void advance_loads();  // sequences take the pages that have arrived
  uint32_t compute_until(LiveSequence& sequence);
  bool waits_for_load(const LiveSequence& sequence) const;
  bool is_in_the_way(const LiveSequence& sequence) const;
  void free_promises(PolicyState& state) const;
  bool end_load_in_the_way();
  bool room_comes_soon();
  bool adopt(LiveSequence& sequence, const std::function<bool()>& take);
  void end_load(LiveSequence& sequence);
  void end_wait(LiveSequence& sequence);
  void take_trace(TakeTraceCommand& command);
  void keep_path(LiveSequence& sequence, bool running);
  void keep_static_parts(const LiveSequence& sequence, uint32_t whole);
  void keep_ahead();
  uint32_t lost_by_swap(const LiveSequence& sequence) const;
  void take_turns();
  void set_slice();
  uint64_t bytes_to_bring_back(const LiveSequence& sequence) const;
  void control_thrash();
  void measure_step();

  void tell();
  void publish();

  const EngineOptions options_;
  PolicyOptions policy_;  // slice_tokens follows what is measured
  Parts parts_;
  std::vector<kernels::KvGroupLayout> layouts_;

  Channel<Command> inbox_;
  HeldPrefixes held_;
  SessionPaths session_paths_;
  std::vector<std::unique_ptr<Prefetch>> prefetches_;
  Clock::TimePoint report_at_ = Clock::TimePoint::max();  // the first that is due
  StopFlag never_;  // pop() ends by ShutDownCommand, not by a flag
  std::atomic<uint32_t> open_requests_{0};
  bool shutting_down_ = false;

  std::unordered_map<uint64_t, std::unique_ptr<LiveRequest>> requests_;
  std::vector<LiveSequence*> waiting_;  // in order of priority, then arrival
  std::vector<LiveSequence*> running_;  // index: the policy's slot
  std::vector<LiveRequest*> ended_;     // since the last sweep
  bool admission_paused_ = false;
  std::optional<Clock::TimePoint> no_room_since_;  // while orphans are waited for
  uint64_t late_orphans_ = 0;  // of those there are, that were waited for in vain
  Outbox outbox_;

  // The step that runs.
  model::StepBatch batch_;
  model::StepResult result_;
  std::vector<LiveSequence*> stepping_;
  LiveSequence* under_load_ = nullptr;  // who computes in it although its load has not ended
  std::unique_ptr<kernels::Event> step_done_;
  Clock::TimePoint step_began_{};
  double step_seconds_ = 0;  // mean
  double slice_factor_ = 1;  // grows while what was swapped out has to be computed again
  ThrashControl thrash_;
  uint64_t generated_before_ = 0;  // this step

  DeviceState device_state_ = DeviceState::kWorks;
  std::string lost_why_, absent_why_;
  Clock::Duration rebuild_pause_{};  // after the last try, which failed
  Clock::TimePoint rebuild_at_{};    // not before
  Scope rebuild_scope_;

  StepTrace trace_;

  bool copies_enqueued_ = false;  // by forks, since the step ended
  bool idle_ = false;             // waits for a command

  EngineStats counters_;
  mutable std::mutex published_mutex_;
  EngineStats published_;
};

}  // namespace spillway::scheduler
