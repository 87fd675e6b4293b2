// Workers of a simulation: each piece of work takes its time, and now and then they have too much
// to do and refuse one. The work itself runs on the loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "runtime/engine_loop.h"
#include "runtime/prng.h"
#include "runtime/stop.h"

namespace spillway::sim {

class SimWorkers {
 public:
  // Both outlive it, and it outlives what it runs.
  SimWorkers(EngineLoop& loop, Prng& random) : loop_(loop), random_(random) {}

  Task<Result<>> run(std::function<void()> work) {
    if (refuse_one_in > 0 && random_.below(refuse_one_in) == 0) {
      co_return Error{ErrorCode::kResourceExhausted, "the workers are busy"};
    }
    ++working;
    const auto most = static_cast<uint64_t>(2 * work_takes.count());
    (void)co_await loop_.sleep_for(std::chrono::nanoseconds(random_.below(most)), never_);
    work();
    --working;
    ++worked;
    co_return Result<>();
  }

  std::chrono::nanoseconds work_takes = std::chrono::microseconds(250);  // on average
  uint64_t refuse_one_in = 8;                                            // pieces; 0: none
  uint64_t working = 0, worked = 0;                                      // pieces, now and so far

 private:
  EngineLoop& loop_;
  Prng& random_;
  StopFlag never_;
};

}  // namespace spillway::sim
