#include "kernels/cpu_device.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/block_until_done.h"
#include "kernels/stamp.h"

namespace spillway::kernels {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Device> device_of(uint32_t threads) {
  return make_cpu_device({.threads = threads, .level = "test"});
}

void finish(Device& device, Stream& stream) {
  const auto event = device.make_event();
  stream.record(*event);
  block_until_done(*event);
}

TEST(cpu_device, memory_is_aligned_zeroed_and_its_own) {
  const auto device = device_of(1);
  EXPECT_EQ(device->description(), "cpu test, 1 thread");
  std::vector<DeviceMemory> blocks;
  for (const size_t bytes : {size_t{1}, size_t{1}, size_t{4096}, size_t{3} << 20}) {
    Result<DeviceMemory> memory =
        blocks.empty() ? device->allocate_host(bytes) : device->allocate(bytes);
    ASSERT_TRUE(memory.has_value());
    EXPECT_EQ(memory->bytes, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data) % 4096, 0u);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(memory->data[i], std::byte{0});
    std::memset(memory->data, 0xee, bytes);
    blocks.push_back(std::move(*memory));
  }
  EXPECT_EQ(device->allocate(0)->data, nullptr);
  const Result<DeviceMemory> too_much = device->allocate(size_t{1} << 60);
  ASSERT_TRUE(too_much.has_error());
  EXPECT_EQ(too_much.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(device->allocate(SIZE_MAX).error().code, ErrorCode::kResourceExhausted);
}

// Every worker runs the launch once, and what they write before a barrier all see after it.
TEST(cpu_device, a_launch_runs_once_per_worker_and_its_barriers_order_writes) {
  for (const uint32_t threads : {1u, 2u, 3u, 5u}) {
    const auto device = device_of(threads);
    std::vector<uint64_t> values(threads, 0);
    for (int repeat = 0; repeat < 20; ++repeat) {
      device->compute().launch([&](Team& team) {
        CHECK(team.count() == values.size());
        for (uint64_t round = 1; round <= 20; ++round) {
          ++values[team.index()];
          team.barrier();
          for (const uint64_t value : values) CHECK(value == values[0]);
          team.barrier();
        }
      });
    }
    finish(*device, device->compute());
    for (const uint64_t value : values) EXPECT_EQ(value, 400u);
  }
}

TEST(cpu_device, a_stream_stamps_when_it_got_somewhere) {
  const auto device = device_of(3);
  const RealClock clock;
  for (Stream* stream : {&device->compute(), &device->copy_in(), &device->copy_out()}) {
    Clock::TimePoint before, after;
    const Clock::TimePoint asked = clock.now();
    stamp(*stream, clock, before);
    stream->launch([](Team& team) {
      if (team.index() == 0) std::this_thread::sleep_for(20ms);
    });
    stamp(*stream, clock, after);
    finish(*device, *stream);
    EXPECT_GE(before, asked);
    EXPECT_GE(after - before, 20ms);
    EXPECT_LE(after, clock.now());
  }
}

TEST(cpu_device, what_a_launch_captured_is_freed_before_its_event_is_done) {
  const auto device = device_of(2);
  for (int i = 0; i < 200; ++i) {
    auto captured = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = captured;
    device->compute().launch([held = std::move(captured)](Team&) {});
    finish(*device, device->compute());
    ASSERT_TRUE(watch.expired());
  }
}

int64_t cpu_us() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

TEST(cpu_device, a_team_sleeps_before_a_gate) {
  const auto device = device_of(3);
  const auto gate = device->make_gate();
  std::atomic<uint32_t> ran{0};
  device->compute().wait(*gate, 1);
  device->compute().launch([&ran](Team&) { ++ran; });
  std::this_thread::sleep_for(20ms);
  const int64_t before = cpu_us();
  std::this_thread::sleep_for(100ms);
  EXPECT_LT(cpu_us() - before, 5'000);
  EXPECT_EQ(ran, 0u);
  gate->raise(1);
  finish(*device, device->compute());
  EXPECT_EQ(ran, 3u);
}

}  // namespace
}  // namespace spillway::kernels
