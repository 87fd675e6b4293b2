// Time as the engine sees it: a value that is passed in, so that tests run without a wall clock.
#pragma once

#include <chrono>

#include "runtime/check.h"

namespace spillway {

class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  virtual ~Clock() = default;
  // Never goes back. Any thread, unless the implementation says otherwise.
  virtual TimePoint now() const = 0;
};

class RealClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// Stands still until told to advance. One thread.
class SimulatedClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  // REQUIRES: by >= 0.
  void advance(Duration by) {
    CHECK(by >= Duration::zero());
    now_ += by;
  }

 private:
  TimePoint now_{};
};

}  // namespace spillway
