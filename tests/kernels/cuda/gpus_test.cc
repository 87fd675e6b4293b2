// What GPUs there are, and why there are none, on the simulated runtime.
#include "kernels/cuda/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_device.h"
#include "tests/emulator/simulated_cuda.h"

namespace spillway::kernels {
namespace {

using testing::HasSubstr;

TEST(Gpus, each_is_told_of_with_its_memory) {
  emulator::SimulatedCuda cuda({.devices = 2, .device_bytes = size_t{3} << 30});
  const auto gpus = find_gpus();
  ASSERT_TRUE(gpus.has_value());
  ASSERT_EQ(gpus->size(), 2u);
  EXPECT_EQ((*gpus)[1].index, 1);
  EXPECT_TRUE((*gpus)[1].has_kernels());
  EXPECT_EQ((*gpus)[1].description(), "simulated, sm_90, 3 GiB");
}

TEST(Gpus, an_older_one_than_there_are_kernels_for_is_known) {
  EXPECT_FALSE((GpuInfo{.major = 7, .minor = 5}.has_kernels()));
  EXPECT_TRUE((GpuInfo{.major = 8, .minor = 0}.has_kernels()));
}

TEST(Gpus, what_is_missing_is_said) {
  const auto why_none = [](const emulator::SimulatedCudaOptions& options) {
    emulator::SimulatedCuda cuda(options);
    const auto gpus = find_gpus();
    EXPECT_EQ(gpus.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(make_cuda_device({}).error().message, gpus.error().message);
    return gpus.error().message;
  };
  EXPECT_EQ(why_none({.driver_version = 0}), "no GPU to use: there is no NVIDIA driver here");
  EXPECT_EQ(
      why_none({.driver_version = 12040}),
      "no GPU to use: the NVIDIA driver here is for CUDA 12.4, and this program takes one for "
      "13.0");
  EXPECT_THAT(why_none({.devices = 0}), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(Gpus, memory_that_somebody_has_is_not_free) {
  emulator::SimulatedCuda cuda({.device_bytes = 4 << 20});
  EXPECT_EQ(gpu_memory(0)->free_bytes, size_t{4} << 20);
  const auto device = make_cuda_device({});
  const auto taken = (*device)->allocate((1 << 20) - 4096);
  EXPECT_EQ(gpu_memory(0)->free_bytes, size_t{3} << 20);
  EXPECT_EQ(gpu_memory(0)->all_bytes, size_t{4} << 20);
  EXPECT_EQ(gpu_memory(1).error().code, ErrorCode::kUnavailable);
  cuda.fail_call("cudaMemGetInfo", cudaErrorECCUncorrectable);
  EXPECT_THAT(gpu_memory(0).error().message, HasSubstr("cudaMemGetInfo"));
}

}  // namespace
}  // namespace spillway::kernels
