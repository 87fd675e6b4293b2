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

// Beside static arrays of up to 48 KB this is 99 KB, the least that a compute capability from 8.0
// on gives a block (8.6, 8.9 and 12.0 do).
inline constexpr size_t kDynamicSharedBytesMax = 51 * 1024;

struct LaunchShape {
  Index3 grid;              // blocks; a grid with a zero launches nothing
  uint32_t threads = 0;     // of a block: a multiple of 32, at most 1,024
  size_t shared_bytes = 0;  // of dynamic shared memory, a block: at most kDynamicSharedBytesMax
};

}  // namespace spillway::kernels::cuda
