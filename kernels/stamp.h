// When a stream gets somewhere, told by the stream itself. Not on a GPU, whose launch() runs at
// once (cuda/cuda_device.h): it tells when that was enqueued.
#pragma once

#include "kernels/device.h"
#include "runtime/clock.h"

namespace spillway::kernels {

// Writes the time at which the stream has run all that was enqueued before. `to` and `clock` belong
// to the operation until an event recorded after it is done.
inline void stamp(Stream& stream, const Clock& clock, Clock::TimePoint& to) {
  stream.launch([&clock, &to](Team& team) {
    if (team.index() == 0) to = clock.now();
  });
}

}  // namespace spillway::kernels
