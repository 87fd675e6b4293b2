// What the step loop tells the timeline (runtime/trace.h): its own work, steps with their batch and
// layers, and what requests wait for. Engine thread only. While the trace is off every call is a
// branch.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "model/runner.h"
#include "runtime/engine_loop.h"
#include "runtime/trace.h"
#include "scheduler/live.h"

namespace spillway::scheduler {

struct StepPicture {
  Clock::TimePoint began;  // it was enqueued
  uint64_t number = 0;
  size_t running = 0, waiting = 0;  // sequences
};

class StepTrace {
 public:
  explicit StepTrace(EngineLoop& loop) : loop_(loop) {}

  bool on() const { return loop_.trace().on(); }
  // The engine's thread begins some work of its own; engine() says what it was, and that the next
  // begins.
  void mark() { marked_ = on() ? loop_.clock().now() : Clock::TimePoint{}; }
  void engine(const char* name);
  // The step has ended just now.
  void step(const StepPicture& picture, const model::StepBatch& batch,
            const model::StepResult& result);
  void evicted(uint64_t pages_in_all);
  // The request has waited since then, and does so no longer.
  void waited(const LiveRequest& request, const char* name, Clock::TimePoint since);
  // The request's last phase ends.
  void finished(const LiveRequest& request) { add_phase(request, nullptr); }
  // Adds what the request is just doing.
  void add_open(const LiveRequest& request, TraceSnapshot& to);
  // What the tenant may see of it.
  void keep_own(TraceSnapshot& snapshot, const std::string& tenant);

 private:
  void add_phase(const LiveRequest& request, TraceSnapshot* to);
  TraceEvent span(const LiveRequest& request, const char* name, Clock::TimePoint since);
  uint32_t number_of(const std::string& tenant);
  void layers(const model::StepResult& result);

  EngineLoop& loop_;
  Clock::TimePoint marked_{};
  uint64_t evicted_ = 0;
  std::unordered_map<std::string, uint32_t> tenants_;  // seen while it was on: as many as keys
};

}  // namespace spillway::scheduler
