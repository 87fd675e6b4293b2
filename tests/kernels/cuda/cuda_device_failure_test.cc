// What is left when a GPU fails: whoever waits goes on and sees it, nothing runs any more, host
// memory is what it was, and nothing leaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/scope.h"
#include "tests/kernels/cuda/cuda_machine.h"

namespace spillway::kernels::cuda {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr size_t kPage = 4096;

Task<> copy_rounds(CudaDevice* device, Stream* stream, std::byte* there, std::byte* host,
                   int* ended) {
  const auto event = device->make_event();
  for (int round = 0; round < 3; ++round) {
    stream->copy(there, host, kPage);
    stream->copy(there + kPage, host + kPage, kPage);
    stream->record(*event);
    co_await event->wait();
    if (device->failure() != nullptr) break;
  }
  ++*ended;
}

// Every call that the device makes: memory, copies alone and in batches, events between streams, a
// gate that opens while a stream stands before it, and one that opens after its death.
struct Scenario {
  explicit Scenario(CudaMachine& on) : machine(on) {}

  // False: refused before there was anything to await.
  bool run() {
    if (machine.make_device() == nullptr) return false;
    CudaDevice& device = *machine.device;
    auto here = device.allocate(8 * kPage);
    auto pinned = device.allocate_host(8 * kPage);
    if (!here || !pinned) return false;
    there = std::move(*here);
    host = std::move(*pinned);
    std::memset(host.data, 0x42, 8 * kPage);
    machine.cuda.forbid_waiting(true);
    machine.loop.run(steps(this));
    machine.cuda.forbid_waiting(false);
    return true;
  }
  static Task<> steps(Scenario* self) {
    CudaMachine& machine = self->machine;
    CudaDevice& device = *machine.device;
    Scope scope(machine.loop.executor());
    std::byte* const at = self->there.data;
    scope.spawn(copy_rounds(&device, &device.copy_in(), at, self->host.data, &self->ended));
    scope.spawn(copy_rounds(&device, &device.copy_out(), at + 2 * kPage,
                            self->host.data + 2 * kPage, &self->ended));
    const auto gate = device.make_gate();
    const auto stepped = device.make_event();
    device.compute().wait(*gate, 2);
    machine.run(device.compute(), [at] { at[4 * kPage] = std::byte{7}; });
    device.compute().record(*stepped);
    device.copy_out().wait(*stepped);
    const auto copied = device.make_event();
    device.compute().copy(at + 5 * kPage, self->host.data, kPage);  // alone: no batch
    device.compute().record(*copied);
    const auto slept = co_await machine.loop.sleep_for(1ms, scope.stop());
    EXPECT_TRUE(slept.has_value());
    gate->raise(2);
    co_await stepped->wait();
    co_await copied->wait();
    co_await scope.join();
    const auto last = device.make_event();
    device.copy_out().record(*last);
    co_await last->wait();
    ++self->ended;
  }

  CudaMachine& machine;
  DeviceMemory there, host;
  int ended = 0;
};

// The scenario's end, however it went.
void expect_good_end(CudaMachine& machine, Scenario& scenario, bool began) {
  const bool failed = machine.device != nullptr && machine.device->failure() != nullptr;
  if (began) {
    EXPECT_EQ(scenario.ended, 3);
    EXPECT_EQ(machine.loop.timers(), 0u);
    // The bytes of a host tier are good, whatever the GPU did.
    for (size_t i = 0; i < 4 * kPage; ++i) ASSERT_EQ(scenario.host.data[i], std::byte{0x42});
    if (failed) {
      const auto event = machine.device->make_event();
      machine.device->compute().record(*event);
      EXPECT_TRUE(event->done());
      EXPECT_EQ(machine.device->allocate(1).error().message, machine.device->failure()->message);
      bool ran = false;
      machine.device->compute().launch([&](Team&) { ran = true; });
      EXPECT_FALSE(ran);
    }
  }
  // Memory may be given back before the device goes, or after.
  scenario.there = {};
  machine.device.reset();
  scenario.host = {};
  EXPECT_EQ(machine.cuda.take_misuse(), std::vector<std::string>{});
  EXPECT_EQ(machine.cuda.left(), "");  // freed, or lost and taken by the reset
}

constexpr const char* kCalls[] = {
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaSetDevice",
    "cudaMalloc",
    "cudaHostRegister",
    "cudaHostGetDevicePointer",
    "cudaStreamCreateWithFlags",
    "cudaMemsetAsync",
    "cudaMemcpyAsync",
    "cudaMemcpyBatchAsync",
    "cudaStreamWaitEvent",
    "cudaStreamSynchronize",
    "cudaEventCreateWithFlags",
    "cudaEventRecord",
    "cuStreamWriteValue32",
    "cuStreamWaitValue32",
    "launch",
};

TEST(CudaDeviceFailure, a_call_that_is_refused_ends_the_device_and_nothing_else) {
  for (const char* const call : kCalls) {
    SCOPED_TRACE(call);
    for (uint32_t after = 0;; ++after) {
      SCOPED_TRACE(after);
      CudaMachine machine({.seed = after});
      machine.cuda.fail_call(call, cudaErrorInvalidValue, after);
      Scenario scenario(machine);
      const bool began = scenario.run();
      const bool reached = machine.cuda.calls(call) > after;
      const bool failed = !began || machine.device->failure() != nullptr;
      EXPECT_EQ(failed, reached);
      if (began && failed) {
        EXPECT_EQ(machine.device->failure()->code, ErrorCode::kUnavailable);
        EXPECT_THAT(machine.device->failure()->message, HasSubstr("GPU 0 has failed"));
      }
      expect_good_end(machine, scenario, began);
      if (HasFailure()) return;
      if (!reached) {
        EXPECT_GT(after, 0u);  // the scenario makes this call
        break;
      }
    }
  }
}

TEST(CudaDeviceFailure, an_error_that_comes_later_and_stays_ends_the_device) {
  uint32_t failures = 0;
  for (bool failed = true; failed; ++failures) {
    SCOPED_TRACE(failures);
    CudaMachine machine({.seed = failures});
    machine.cuda.fail_operation(cudaErrorIllegalAddress, failures);
    Scenario scenario(machine);
    ASSERT_TRUE(scenario.run());
    failed = machine.device->failure() != nullptr;
    if (failed) {
      EXPECT_THAT(machine.device->failure()->message, HasSubstr("cudaErrorIllegalAddress"));
    }
    expect_good_end(machine, scenario, true);
    if (HasFailure()) return;
  }
  EXPECT_GT(failures, 5u);
}

// Memory is freed where its last owner is, whichever thread that is: the device goes on.
TEST(CudaDeviceFailure, memory_that_cannot_be_freed_ends_nothing) {
  for (const char* const call : {"cudaFree", "cudaHostUnregister"}) {
    CudaMachine machine;
    CudaDevice& device = *machine.make_device();
    machine.cuda.fail_call(call, cudaErrorInvalidValue);
    static_cast<void>(*device.allocate(kPage));
    static_cast<void>(*device.allocate_host(kPage));
    EXPECT_EQ(device.failure(), nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
}

TEST(CudaDeviceFailure, events_that_are_asked_for_tell_of_an_error_too) {
  CudaMachine machine({.write_words = false});
  CudaDevice& device = *machine.make_device();
  machine.cuda.fail_operation(cudaErrorECCUncorrectable);
  machine.run(device.compute(), [] {});
  machine.finish(device.compute());
  ASSERT_NE(device.failure(), nullptr);
  EXPECT_THAT(device.failure()->message, HasSubstr("cudaErrorECCUncorrectable"));
}

// A host tier lives on: its pages are plain memory, and another device may be made in its stead.
TEST(CudaDeviceFailure, after_a_lost_device_another_can_be_made) {
  CudaMachine machine;
  CudaDevice& lost = *machine.make_device();
  const DeviceMemory host = *lost.allocate_host(kPage);
  DeviceMemory there = *lost.allocate(kPage);
  std::memset(host.data, 0x5a, kPage);
  machine.cuda.fail_operation(cudaErrorIllegalAddress);
  lost.copy_in().copy(there.data, host.data, kPage);
  machine.finish(lost.copy_in());
  ASSERT_NE(lost.failure(), nullptr);
  machine.device.reset();
  ASSERT_NE(machine.make_device(), nullptr);
  CudaDevice& next = *machine.device;
  const DeviceMemory again = *next.allocate(kPage);
  const DeviceMemory staging = *next.allocate_host(2 * kPage);
  there = {};  // what was lost is not freed a second time
  std::memcpy(staging.data, host.data, kPage);
  next.copy_in().copy(again.data, staging.data, kPage);
  next.copy_in().copy(staging.data + kPage, again.data, kPage);
  machine.finish(next.copy_in());
  EXPECT_EQ(next.failure(), nullptr);
  EXPECT_EQ(std::memcmp(staging.data + kPage, host.data, kPage), 0);
}

// What ends is this device, whichever the thread works with at the time.
TEST(CudaDeviceFailure, another_device_of_the_thread_is_left_alone) {
  CudaMachine machine({.devices = 2});
  CudaDevice& lost = *machine.make_device();
  const DeviceMemory there = *lost.allocate(kPage);
  const DeviceMemory host = *lost.allocate_host(kPage);
  const auto event = lost.make_event();
  machine.cuda.fail_operation(cudaErrorIllegalAddress);
  lost.copy_in().copy(there.data, host.data, kPage);
  lost.copy_in().record(*event);
  cudaSetDevice(1);
  machine.await(*event);
  ASSERT_NE(lost.failure(), nullptr);
  cudaSetDevice(1);
  machine.device.reset();
  EXPECT_THAT(machine.cuda.take_misuse(), testing::IsEmpty());
  cudaSetDevice(0);
}

// A call that is refused leaves operations that run: they have ended when the device has, so that
// nobody's memory changes behind its back.
TEST(CudaDeviceFailure, nothing_runs_any_more_once_the_device_has_failed) {
  for (const bool gated : {false, true}) {
    CudaMachine machine;
    CudaDevice& device = *machine.make_device();
    const DeviceMemory host = *device.allocate_host(kPage);
    bool ran = false;
    const auto gate = device.make_gate();
    if (gated) device.compute().wait(*gate, 1);  // which nobody opens
    machine.run(device.compute(), [&] { ran = true; });
    machine.cuda.fail_call("cudaEventRecord", cudaErrorInvalidValue);
    const auto event = device.make_event();
    device.compute().record(*event);
    EXPECT_TRUE(event->done());
    EXPECT_NE(device.failure(), nullptr);
    EXPECT_TRUE(ran);
    EXPECT_FALSE(machine.cuda.step());
  }
}

TEST(CudaDeviceFailure, an_operators_error_ends_the_device) {
  CudaMachine machine;
  CudaDevice& device = *machine.make_device();
  device.take_error_of("rms_norm", 0);
  EXPECT_EQ(device.failure(), nullptr);
  device.take_error_of("rms_norm", cudaErrorLaunchFailure);
  ASSERT_NE(device.failure(), nullptr);
  EXPECT_THAT(device.failure()->message, HasSubstr("rms_norm"));
}

}  // namespace
}  // namespace spillway::kernels::cuda
