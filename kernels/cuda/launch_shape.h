// How many threads a kernel is launched with. Plain types: both sides of a launch use them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::kernels::cuda {

struct Index3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

struct LaunchShape {
  Index3 grid;              // blocks; a grid with a zero launches nothing
  uint32_t threads = 0;     // of a block: a multiple of 32, at most 1,024
  size_t shared_bytes = 0;  // of dynamic shared memory, a block
};

}  // namespace spillway::kernels::cuda
