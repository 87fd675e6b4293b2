// For tests, benchmarks and tools that have no loop of their own.
#pragma once

#include "kernels/device.h"
#include "runtime/clock.h"
#include "runtime/engine_loop.h"
#include "runtime/eventfd_parker.h"

namespace spillway::kernels {

// Blocks the calling thread until `event` is done. The engine co_awaits event.wait() instead.
inline void block_until_done(Event& event) {
  const RealClock clock;
  EventfdParker parker;
  EngineLoop loop(clock, parker);
  loop.run(event.wait());
}

}  // namespace spillway::kernels
