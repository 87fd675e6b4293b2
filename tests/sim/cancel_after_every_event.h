// Runs a program of coroutines again and again, and cancels it after its 0th, 1st, 2nd, ... event.
//
//   struct Program {
//     explicit Program(SimulatedLoop& sim);
//     void start(Scope& scope);        // spawns
//     void check(bool cancelled);      // at the end: everything is back where it was
//   };
//   cancel_after_every_event([](SimulatedLoop& sim) { return Program(sim); });
//
// A program that does not end after a cancel fails a CHECK.
#pragma once

#include <cstdint>

#include "runtime/check.h"
#include "tests/sim/simulated_loop.h"

namespace spillway::sim {

// `make(sim)` returns the program. Returns how many events an uncancelled run has.
template <class Make>
uint64_t cancel_after_every_event(Make make) {
  constexpr uint64_t kEventsMax = 1'000'000;
  for (uint64_t events = 0;; ++events) {
    CHECK(events < kEventsMax);
    SimulatedLoop sim;
    auto program = make(sim);
    bool ended_by_itself = false;
    {
      Scope scope(sim.loop.executor());
      program.start(scope);
      sim.run(scope, events);
      ended_by_itself = scope.running() == 0;
      scope.cancel();
      sim.run(scope, kEventsMax);
      const bool ends_after_cancel = scope.running() == 0;
      CHECK(ends_after_cancel);
    }
    while (sim.loop.run_one()) {
    }
    program.check(!ended_by_itself);
    if (ended_by_itself) return events;
  }
}

}  // namespace spillway::sim
