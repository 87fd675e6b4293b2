// Operators as work of the simulated runtime's streams: in order with copies and events, over the
// GPU's memory alone, with the arguments that they were called with.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cuda/checksum.cuh"
#include "kernels/cuda/page_operators.h"
#include "kernels/cuda/sampling.h"
#include "tests/emulator/simulated_cuda.h"
#include "tests/kernels/cuda/cuda_machine.h"

namespace spillway::kernels::cuda {
namespace {

constexpr size_t kPage = 4096;

struct OnGpu {
  explicit OnGpu(emulator::SimulatedCudaOptions options = {}) : machine(options) {
    CHECK(machine.make_device() != nullptr);
    device = *machine.device->allocate(16 * kPage);
    host = *machine.device->allocate_host(16 * kPage);
  }
  CUstream_st* compute() { return machine.device->native(machine.device->compute()); }

  CudaMachine machine;
  DeviceMemory device, host;
};

TEST(StreamOperators, run_behind_the_copies_before_them_and_before_those_behind) {
  const uint64_t seed = test_seed();
  for (uint64_t run = 0; run < 20; ++run) {
    OnGpu gpu({.seed = seed + run});
    CudaDevice& device = *gpu.machine.device;
    for (size_t i = 0; i < 4 * kPage; ++i) gpu.host.data[i] = static_cast<std::byte>(i * 7 + run);
    const PageId pages[] = {PageId{3}, PageId{1}};
    std::memcpy(gpu.host.data + 8 * kPage, pages, sizeof pages);
    const auto up = device.make_event(), computed = device.make_event();
    device.copy_in().copy(gpu.device.data, gpu.host.data, 4 * kPage);
    device.copy_in().copy(gpu.device.data + 8 * kPage, gpu.host.data + 8 * kPage, sizeof pages);
    // What is summed: an operator's argument that a copy brings.
    const DeviceBytes part{.data = gpu.device.data + 4 * kPage, .bytes = 2 * kPage, .seed = run};
    std::memcpy(gpu.host.data + 9 * kPage, &part, sizeof part);
    device.copy_in().copy(gpu.device.data + 9 * kPage, gpu.host.data + 9 * kPage, sizeof part);
    device.copy_in().record(*up);
    device.compute().wait(*up);
    device.compute().launch([&](Team&) {
      PageCopyArgs gather{.pool = gpu.device.data,
                          .pages = reinterpret_cast<const PageId*>(gpu.device.data + 8 * kPage),
                          .count = 2,
                          .page_bytes = kPage,
                          .contiguous = gpu.device.data + 4 * kPage};
      device.take_error_of("gather_pages", gather_pages(gpu.compute(), gather));
      gather = {};  // they were taken by value
      const ChecksumArgs sums{
          .parts = reinterpret_cast<const DeviceBytes*>(gpu.device.data + 9 * kPage),
          .count = 1,
          .sums = reinterpret_cast<uint64_t*>(gpu.device.data + 10 * kPage)};
      device.take_error_of("checksum", checksum(gpu.compute(), sums));
    });
    device.compute().record(*computed);
    device.copy_out().wait(*computed);
    device.copy_out().copy(gpu.host.data + 4 * kPage, gpu.device.data + 4 * kPage, 2 * kPage);
    device.copy_out().copy(gpu.host.data + 10 * kPage, gpu.device.data + 10 * kPage, 8);
    gpu.machine.finish(device.copy_out());
    gpu.machine.await(*up);  // past for the streams, and perhaps yet to be seen by the host
    gpu.machine.await(*computed);
    EXPECT_EQ(std::memcmp(gpu.host.data + 4 * kPage, gpu.host.data + 3 * kPage, kPage), 0);
    EXPECT_EQ(std::memcmp(gpu.host.data + 5 * kPage, gpu.host.data + kPage, kPage), 0);
    uint64_t sum = 0;
    std::memcpy(&sum, gpu.host.data + 10 * kPage, sizeof sum);
    DeviceBytes twin = part;
    twin.data = gpu.host.data + 4 * kPage;
    uint64_t expected = 0;
    emulator::Launcher launch;
    cuda::checksum(launch, {.parts = &twin, .count = 1, .sums = &expected});
    EXPECT_EQ(sum, expected);
  }
}

TEST(StreamOperators, a_draw_takes_its_logits_from_the_gpus_memory) {
  OnGpu gpu;
  CudaDevice& device = *gpu.machine.device;
  constexpr uint32_t kTokens = 300, kRows = 3;
  auto* const logits = reinterpret_cast<float*>(gpu.host.data);
  for (uint32_t i = 0; i < kRows * kTokens; ++i) logits[i] = static_cast<float>(i % 7);
  for (uint32_t row = 0; row < kRows; ++row) logits[row * kTokens + 50 * row + 1] = 9;
  DeviceDraw draws[kRows] = {};
  for (DeviceDraw& draw : draws) draw.inverse_temperature = 0;
  std::memcpy(gpu.host.data + 4 * kPage, draws, sizeof draws);
  device.compute().copy(gpu.device.data, gpu.host.data, 5 * kPage);
  device.compute().launch([&](Team&) {
    device.take_error_of(
        "sample",
        sample(gpu.compute(), {.logits = reinterpret_cast<float*>(gpu.device.data),
                               .stride = kTokens,
                               .rows = kRows,
                               .n = kTokens,
                               .draws = reinterpret_cast<DeviceDraw*>(gpu.device.data + 4 * kPage),
                               .tokens = reinterpret_cast<int32_t*>(gpu.device.data + 5 * kPage),
                               .scratch = gpu.device.data + 6 * kPage}));
  });
  device.compute().copy(gpu.host.data + 5 * kPage, gpu.device.data + 5 * kPage, 64);
  gpu.machine.finish(device.compute());
  ASSERT_EQ(device.failure(), nullptr);
  int32_t tokens[kRows] = {};
  std::memcpy(tokens, gpu.host.data + 5 * kPage, sizeof tokens);
  EXPECT_EQ(tokens[0], 1);
  EXPECT_EQ(tokens[1], 51);
  EXPECT_EQ(tokens[2], 101);
}

}  // namespace
}  // namespace spillway::kernels::cuda
