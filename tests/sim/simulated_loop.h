// An EngineLoop on simulated time: deterministic, one thread, no waiting.
#pragma once

#include "runtime/clock.h"
#include "runtime/engine_loop.h"
#include "runtime/scope.h"
#include "runtime/simulated_parker.h"

namespace spillway::sim {

struct SimulatedLoop {
  SimulatedClock clock;
  SimulatedParker parker{clock};
  EngineLoop loop{clock, parker};

  // Runs at most `events_max` pieces of work, moving time on where nothing is ready, until `scope`
  // is empty. Returns how many it ran.
  uint64_t run(const Scope& scope, uint64_t events_max) {
    uint64_t events = 0;
    while (scope.running() > 0 && events < events_max) {
      if (loop.run_one()) {
        ++events;
      } else {
        loop.park();
      }
    }
    return events;
  }
};

}  // namespace spillway::sim
