// A timeline of what the engine does, to see what overlaps with what: spans and moments in a ring
// of the newest kEventsMax. Off it costs a branch and holds no memory.
//
// Owner and thread: the engine's (EngineLoop has it); every event is added there. What other
// threads know (a worker's stamps, trace_json() of a snapshot) comes and goes by value, ordered by
// the event or message it comes with; nothing here takes a lock. It holds times, sizes and counts,
// and no text of any client: names are literals.
//
// Sketch: an event is 136 bytes and takes about 20 ns; 100 steps a second of 30 layers are 4,000
// events, so the ring holds half a minute of a busy engine in 17 MiB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "runtime/clock.h"

namespace spillway {

// What is drawn in one place. Spans of the first five never overlap within their lane.
enum class TraceLane : uint8_t {
  kEngine,    // the engine's thread between two steps
  kSteps,     // steps, with what was in their batch
  kCompute,   // layers, on the compute stream
  kCopyIn,    // copies towards the device
  kCopyOut,   // copies from it
  kReads,     // of the disk
  kWrites,    // and flushes
  kRequests,  // what each request waits for; `id` is the request's
};

struct TraceEvent {
  struct Argument {
    const char* name = nullptr;  // literal
    int64_t value = 0;
  };
  const char* name = nullptr;  // literal
  TraceLane lane{};
  bool moment = false;  // no span: `end` alone counts
  uint32_t tenant = 0;  // of kRequests: whose it is, by a number of the engine's
  uint64_t id = 0;      // tells spans of one lane apart that belong to different things
  Clock::TimePoint begin{}, end{};
  std::array<Argument, 5> arguments{};
  const char* result = nullptr;  // literal: "ok", or why not
};

// What happened between two times.
struct TraceSnapshot {
  Clock::TimePoint begin{}, end{};
  std::vector<TraceEvent> events;  // in the order they ended
  uint64_t lost = 0;               // older ones that the ring no longer had
  bool others_hidden = false;      // it is one tenant's: see keep_own()
};

class Trace {
 public:
  static constexpr size_t kEventsMax = size_t{1} << 17;

  bool on() const { return holders_ > 0; }
  // It records from the first hold() to the last release().
  void hold();
  void release();
  // REQUIRES: on(). The oldest event makes room.
  void add(const TraceEvent& event);
  // What ended in between. REQUIRES: on().
  TraceSnapshot snapshot(Clock::TimePoint begin, Clock::TimePoint end) const;

 private:
  uint32_t holders_ = 0;
  std::vector<TraceEvent> ring_;
  size_t next_ = 0;              // where the next one goes, once the ring is full
  uint64_t lost_ = 0;            // overwritten since it went on
  Clock::TimePoint lost_end_{};  // of the newest of these
};

// Leaves of it what this tenant may see: its own requests whole, of the rest when something was
// done and how it ended, without sizes, counts and places.
void keep_own(TraceSnapshot& snapshot, uint32_t tenant);

// Chrome's trace event format (JSON), which ui.perfetto.dev opens: complete events, in microseconds
// since snapshot.begin, in the order they began. Spans of a lane that overlap get rows of their
// own; what began earlier is cut there. Any thread; about 1 us an event.
std::string trace_json(const TraceSnapshot& snapshot);

}  // namespace spillway
