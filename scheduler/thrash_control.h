// Thrash control: how many streams may take turns, from what turns cost. Time is passed in. Engine
// thread only.
//
// A stream that comes back brings its pages with it. Once those bytes, per token generated, take
// the tier more than half of the time in which the tokens are generated, streams wait for pages and
// not for each other: then fewer of them take turns, by a quarter at a time, down to those that the
// device holds at once. While turns are cheap, one more is let in each window. (As congestion
// control does: the way down is quick, the way up slow.)
#pragma once

#include <cstdint>

#include "runtime/clock.h"

namespace spillway::scheduler {

class ThrashControl {
 public:
  static constexpr uint32_t kNoLimit = UINT32_MAX;
  static constexpr uint32_t kWindowTokens = 64;  // at least, of each stream, between two decisions
  static constexpr double kTooMuch = 0.5;        // of the tier's time
  static constexpr double kLittle = 0.25;

  // A stream came back: bytes of its pages that were no longer on the device, to be loaded or
  // computed again.
  void came_back(uint64_t bytes) {
    window_bytes_ += bytes;
    total_bytes_ += bytes;
  }

  struct Step {
    uint32_t tokens = 0;        // generated in it
    double bytes_per_s = 0;     // that the tier gives now; 0: no tier takes turns
    uint32_t slice_tokens = 0;  // of a turn; a window is no shorter
    uint32_t running = 0;       // streams on the device
    uint32_t streams = 0;       // running or waiting
  };
  // A step has ended.
  void stepped(Clock::TimePoint now, const Step& step);

  // Streams that take turns, those on the device included; kNoLimit: all.
  uint32_t streams_max() const { return streams_max_; }
  uint64_t shrinks() const { return shrinks_; }
  uint64_t total_bytes() const { return total_bytes_; }
  double bytes_per_token() const { return bytes_per_token_; }  // in the window before

 private:
  void decide(double seconds, const Step& step);

  uint32_t streams_max_ = kNoLimit;
  uint64_t shrinks_ = 0;
  uint64_t total_bytes_ = 0;
  double bytes_per_token_ = 0;
  uint64_t window_bytes_ = 0;
  uint64_t window_tokens_ = 0;
  Clock::TimePoint window_began_{};
};

}  // namespace spillway::scheduler
