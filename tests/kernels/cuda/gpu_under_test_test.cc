// What a real GPU could not reach is found on the emulator.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/operators.h"
#include "tests/kernels/cuda/gpu_under_test.h"

namespace spillway::kernels::cuda {
namespace {

TEST(GpuUnderTestTest, arguments_on_the_stack_are_refused) {
  std::vector<float> there(32, 2.0f);
  float here[32] = {};
  GpuUnderTest gpu;
  gpu.run(add_bias, {.x = there.data(), .bias = there.data(), .stride = 32, .rows = 1, .n = 32});
  EXPECT_EQ(there[31], 4.0f);
  EXPECT_NONFATAL_FAILURE(
      gpu.run(add_bias, {.x = there.data(), .bias = here, .stride = 32, .rows = 1, .n = 32}),
      "a pointer to the stack");
}

}  // namespace
}  // namespace spillway::kernels::cuda
