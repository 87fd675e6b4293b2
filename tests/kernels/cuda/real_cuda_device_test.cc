// The CUDA device on CUDA's own runtime: it links, and without a GPU it says that there is none.
// With one, bytes, events and gates do there what they do in the simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "kernels/block_until_done.h"
#include "kernels/cuda/cuda_device.h"

namespace spillway::kernels {
namespace {

constexpr size_t kPage = 360 << 10;
constexpr size_t kPages = 64;

// Up to the device in reverse order, and back down behind an event and a gate.
void swap_pages(CudaDevice& device) {
  const DeviceMemory there = *device.allocate(kPages * kPage);
  const DeviceMemory from = *device.allocate_host(kPages * kPage);
  const DeviceMemory to = *device.allocate_host(kPages * kPage);
  for (size_t i = 0; i < kPages * kPage; ++i)
    from.data[i] = static_cast<std::byte>(i * 31 + i / kPage);
  const auto up = device.make_event(), down = device.make_event();
  for (size_t i = 0; i < kPages; ++i) {
    device.copy_in().copy(there.data + (kPages - 1 - i) * kPage, from.data + i * kPage, kPage);
  }
  device.copy_in().record(*up);
  device.copy_out().wait(*up);
  std::unique_ptr<Gate> gate;
  if (device.has_gates()) {
    gate = device.make_gate();
    device.copy_out().wait(*gate, 3);
  }
  for (size_t i = 0; i < kPages; ++i) {
    device.copy_out().copy(to.data + i * kPage, there.data + (kPages - 1 - i) * kPage, kPage);
  }
  device.copy_out().record(*down);
  block_until_done(*up);
  if (gate != nullptr) {
    EXPECT_FALSE(down->done());
    gate->raise(3);
  }
  block_until_done(*down);
  ASSERT_EQ(device.failure(), nullptr) << device.failure()->message;
  EXPECT_EQ(std::memcmp(to.data, from.data, kPages * kPage), 0);
}

TEST(RealCudaDevice, a_gpu_does_its_work_or_is_said_to_be_missing) {
  auto made = make_cuda_device({});
  if (!made) {
    std::printf("%s\n", made.error().message.c_str());
    EXPECT_EQ(made.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(made.error().message, testing::HasSubstr("no GPU to use: "));
    return;
  }
  std::printf("%s\n", (*made)->description().c_str());
  for (int round = 0; round < 3; ++round) swap_pages(**made);
}

}  // namespace
}  // namespace spillway::kernels
