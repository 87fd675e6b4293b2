// How fast transfers and prefill are, measured as they run. Engine thread only; time is passed in.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "runtime/clock.h"

namespace spillway::cache {

// Bytes per second of one tier while anything is in flight there: the mean over busy time, with
// newer samples weighing more. What is in flight longer than it should be lowers the estimate at
// once, so a stalled disk looks slow before its first operation has ended. While nothing is asked
// of it, a low estimate drifts back to the first guess, so that a tier is tried again.
//
// A tier that was idle is silent at first, for as long as all that was begun at once takes, and
// then ends much of it at one moment. So its first sample holds as many bytes as were in flight,
// and what ends at one moment belongs to one sample: else one page that came after a long queue
// would stand for a slow disk, and those right behind it for one without limit.
//
// A tier that is throttled ends much at full speed and then nothing for a while. A sample that has
// a silence in it goes on for twice as long, and so does the next one, so that both hold what the
// silence was for.
//
// One sample that is far off may be a hiccup; two in a row on the same side are a tier that has
// changed its speed, and count for more.
class TransferRate {
 public:
  explicit TransferRate(double guess_bytes_per_s)
      : guess_(guess_bytes_per_s), rate_(guess_bytes_per_s) {}

  void began(Clock::TimePoint now, uint64_t bytes);
  void ended(Clock::TimePoint now, uint64_t bytes, bool whole);
  double bytes_per_s(Clock::TimePoint now) const;
  uint64_t in_flight_bytes() const { return in_flight_; }
  bool measured() const { return measured_; }
  double measured_bytes_per_s() const { return rate_; }  // no drift in it

 private:
  static constexpr uint64_t kSampleBytes = 1u << 20;
  static constexpr double kSampleSeconds = 0.002;  // at least, and so many bytes
  static constexpr double kLongestSeconds = 0.05;  // then anything that ended makes a sample
  static constexpr double kSilences = 2;           // at least, a sample's time is of its longest
  static constexpr double kNewest = 0.3;           // weight of the newest sample
  static constexpr double kDriftSeconds = 30;

  static constexpr Clock::Duration kTogether = std::chrono::microseconds(100);
  static constexpr Clock::Duration kLongBunch = std::chrono::milliseconds(1);  // never a pause
  static constexpr double kMoved = 1.5, kMovedNewest = 0.8;

  void advance(Clock::TimePoint now);
  void take_sample();
  double weight_of(double sample);

  const double guess_;
  double rate_;
  bool measured_ = false;
  uint64_t in_flight_ = 0;
  uint64_t wanted_bytes_ = kSampleBytes;  // of the sample that is being taken
  bool ramp_ = false;                     // it began when the tier was idle
  double silence_s_ = 0;                  // the longest in it, but for a ramp's first
  double last_silence_s_ = 0;             // in the sample before
  double busy_s_ = 0;                     // since the last sample
  double progress_busy_s_ = 0;            // of it, up to the last end
  uint64_t done_bytes_ = 0;               // since the last sample
  Clock::TimePoint marked_{};             // busy time is counted up to here
  Clock::TimePoint progress_{};           // something ended, or the tier got busy
  Clock::TimePoint bunch_{};              // the first of what ended together
  int moved_ = 0;                         // where the last sample was: far above 1, far below -1
};

// Seconds that prefill takes per token, by the token's position: attention makes later ones dearer.
// One mean for each doubling of the position; a place not measured yet takes its neighbour's.
class ComputeRate {
 public:
  // A step computed `rows` prompt tokens from `position` on in that time.
  void measured(uint32_t position, uint32_t rows, double seconds);
  double seconds_per_token(uint32_t position) const;
  // The least that any step takes, however few its rows.
  double step_seconds() const { return step_s_; }

 private:
  static constexpr uint32_t kFirst = 9;  // the first place holds positions below 2^9
  static constexpr uint32_t kPlaces = 12;
  static uint32_t place_of(uint32_t position);

  std::array<double, kPlaces> seconds_{};  // per token; 0: not measured
  double step_s_ = 0;
};

// Keeps a failing tier from costing time: after a few failures in a row it is set aside, and after
// a pause one operation is let through as a probe; the pause doubles up to a minute (cases S9,
// S11).
class Breaker {
 public:
  static constexpr uint32_t kFailuresMax = 3;

  bool open() const { return open_; }
  uint64_t openings() const { return openings_; }
  Clock::TimePoint probe_at() const { return probe_at_; }

  // Whether an operation may be tried now. While set aside, one true answer a pause is the probe:
  // its end must be told. Ends of operations that began before mean nothing then.
  bool allows(Clock::TimePoint now);
  void succeeded();
  void failed(Clock::TimePoint now, bool outright);  // outright: set aside at once
  void undecided() { probing_ = false; }             // the operation ended for other reasons

 private:
  uint32_t failures_ = 0;
  bool open_ = false;
  bool probing_ = false;
  uint64_t openings_ = 0;
  Clock::Duration pause_{};
  Clock::TimePoint probe_at_{};
};

}  // namespace spillway::cache
