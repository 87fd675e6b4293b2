// A CUDA device on the simulated runtime, step by step, under an engine loop on simulated time: one
// thread, and all from one seed.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/engine_loop.h"
#include "runtime/parker.h"
#include "tests/emulator/simulated_cuda.h"

namespace spillway::kernels::cuda {

// Parks by letting the GPU go on, or else time. Stuck, where nothing could ever happen: a bug.
class SteppingParker final : public Parker {
 public:
  SteppingParker(SimulatedClock& clock, emulator::SimulatedCuda& cuda)
      : clock_(clock), cuda_(cuda) {}
  void park(std::optional<std::chrono::nanoseconds> timeout) override {
    const bool ends_some_time = ++parks < kParksMax;
    CHECK(ends_some_time);
    if (cuda_.step()) return;
    const bool something_will_happen = timeout.has_value();
    CHECK(something_will_happen);
    clock_.advance(*timeout);
  }
  void wake() override {}
  std::string description() const override { return "stepping"; }

  uint64_t parks = 0;

 private:
  static constexpr uint64_t kParksMax = 1'000'000;  // far more than a test has

  SimulatedClock& clock_;
  emulator::SimulatedCuda& cuda_;
};

struct CudaMachine {
  explicit CudaMachine(const emulator::SimulatedCudaOptions& options = {}) : cuda(options) {}

  // Null where it failed, with `made_error`.
  CudaDevice* make_device() {
    auto made = make_cuda_device({});
    if (made) {
      device = std::move(*made);
    } else {
      made_error = made.error();
    }
    return device.get();
  }
  // A kernel of the device's compute stream, or of another.
  void run(Stream& stream, std::function<void()> kernel) {
    stream.launch([&](Team&) {
      device->take_error_of("kernel", cuda.launch(device->native(stream), std::move(kernel)));
    });
  }
  void await(Event& event) { loop.run(event.wait()); }
  void finish(Stream& stream) {
    const auto event = device->make_event();
    stream.record(*event);
    await(*event);
  }

  emulator::SimulatedCuda cuda;
  std::unique_ptr<CudaDevice> device;
  std::optional<Error> made_error;
  SimulatedClock clock;
  SteppingParker parker{clock, cuda};
  EngineLoop loop{clock, parker};
};

// SPILLWAY_CUDA_SEED where it is set, so that a run can be repeated; else fresh. Printed.
inline uint64_t test_seed() {
  const char* const set = std::getenv("SPILLWAY_CUDA_SEED");
  const uint64_t seed = set != nullptr ? std::strtoull(set, nullptr, 10) : std::random_device()();
  std::printf("SPILLWAY_CUDA_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace spillway::kernels::cuda
