// Runs tests on the GPU that there is. Exit code 77 where there is none, so that nobody takes that
// for a success or for a failure of the tests.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/gpu/managed_memory.h"

int main(int argc, char** argv) {
  constexpr int kNoGpu = 77;
  testing::InitGoogleTest(&argc, argv);
  if (const auto failure = spillway::kernels::cuda::open_managed_memory()) {
    std::fprintf(stderr, "no GPU to run these tests on (%s)\n", failure->c_str());
    return kNoGpu;
  }
  return RUN_ALL_TESTS();
}
