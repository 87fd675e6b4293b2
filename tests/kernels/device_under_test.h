// The devices that a test runs on: the CPU's, and the CUDA one on the simulated runtime, with a
// thread a stream.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>

#include "kernels/block_until_done.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/cuda_device.h"
#include "runtime/check.h"
#include "tests/emulator/simulated_cuda.h"

namespace spillway::kernels {

class DeviceUnderTest {
 public:
  virtual ~DeviceUnderTest() = default;
  virtual Device& device() = 0;
  // Runs `work` once in the stream's order, where device memory may be touched: a kernel.
  virtual void run(Stream& stream, std::function<void()> work) = 0;

  void finish(Stream& stream) {
    const auto event = device().make_event();
    stream.record(*event);
    block_until_done(*event);
  }
};

class CpuUnderTest final : public DeviceUnderTest {
 public:
  explicit CpuUnderTest(uint32_t threads)
      : device_(make_cpu_device({.threads = threads, .level = "test"})) {}
  Device& device() override { return *device_; }
  void run(Stream& stream, std::function<void()> work) override {
    stream.launch([work = std::move(work)](Team& team) {
      if (team.index() == 0) work();
    });
  }

 private:
  std::unique_ptr<Device> device_;
};

class CudaUnderTest final : public DeviceUnderTest {
 public:
  explicit CudaUnderTest(const emulator::SimulatedCudaOptions& options) : cuda_(options) {
    auto made = make_cuda_device({});
    CHECK(made.has_value());
    device_ = std::move(*made);
  }
  Device& device() override { return *device_; }
  void run(Stream& stream, std::function<void()> work) override {
    stream.launch([this, &stream, work = std::move(work)](Team&) {
      device_->take_error_of("work", cuda_.launch(device_->native(stream), work));
    });
  }

 private:
  emulator::SimulatedCuda cuda_;  // ends the process where CUDA was misused
  std::unique_ptr<CudaDevice> device_;
};

struct DeviceKind {
  const char* name;
  std::unique_ptr<DeviceUnderTest> (*make)(uint64_t seed);
};

inline std::ostream& operator<<(std::ostream& out, const DeviceKind& kind) {
  return out << kind.name;
}

template <uint32_t kThreads>
std::unique_ptr<DeviceUnderTest> make_cpu(uint64_t) {
  return std::make_unique<CpuUnderTest>(kThreads);
}

template <bool kWords>
std::unique_ptr<DeviceUnderTest> make_cuda(uint64_t seed) {
  return std::make_unique<CudaUnderTest>(emulator::SimulatedCudaOptions{
      .seed = seed, .threads = true, .write_words = kWords, .batches = kWords});
}

inline const DeviceKind kDeviceKinds[] = {
    {"cpu_1_thread", make_cpu<1>},
    {"cpu_3_threads", make_cpu<3>},
    {"cuda", make_cuda<true>},
    {"cuda_that_cannot_write_words", make_cuda<false>},
};

}  // namespace spillway::kernels
