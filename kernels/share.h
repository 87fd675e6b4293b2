// How the workers of a launch divide a number of equal items: evenly, in order, without talking.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace spillway::kernels {

struct Share {
  uint32_t first = 0;
  uint32_t end = 0;
};

// The items [first, end) of this worker. Shares of all workers tile [0, items) and differ by at
// most one item in size.
inline Share share_of(const Team& team, uint32_t items) {
  const uint64_t count = team.count();
  const uint64_t index = team.index();
  return {static_cast<uint32_t>(items * index / count),
          static_cast<uint32_t>(items * (index + 1) / count)};
}

}  // namespace spillway::kernels
