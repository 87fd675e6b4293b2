// A Parker for simulation: instead of blocking it moves the simulated clock to the next timer. All
// that a simulated loop waits for must come from its own timers; one thread.
#pragma once

#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/parker.h"

namespace spillway {

class SimulatedParker final : public Parker {
 public:
  explicit SimulatedParker(SimulatedClock& clock) : clock_(clock) {}

  // REQUIRES: a timeout. Without one nothing could ever happen again: the program is stuck.
  void park(std::optional<std::chrono::nanoseconds> timeout) override {
    const bool something_will_happen = timeout.has_value();
    CHECK(something_will_happen);
    clock_.advance(*timeout);
  }
  void wake() override {}
  std::string description() const override { return "simulated"; }

 private:
  SimulatedClock& clock_;
};

}  // namespace spillway
