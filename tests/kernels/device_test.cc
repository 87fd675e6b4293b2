// What device.h promises, of every device.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/prng.h"
#include "runtime/scope.h"
#include "tests/kernels/device_under_test.h"

namespace spillway::kernels {
namespace {

using namespace std::chrono_literals;

class EveryDevice : public testing::TestWithParam<DeviceKind> {
 protected:
  EveryDevice() : seed_(std::random_device()()), under_test_(GetParam().make(seed_)) {
    RecordProperty("seed", std::to_string(seed_));
  }
  ~EveryDevice() override {
    if (HasFailure()) std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
  }
  Device& device() { return under_test_->device(); }
  std::array<Stream*, 3> streams() {
    return {&device().compute(), &device().copy_in(), &device().copy_out()};
  }
  void run(Stream& stream, std::function<void()> work) {
    under_test_->run(stream, std::move(work));
  }
  void finish(Stream& stream) { under_test_->finish(stream); }
  DeviceMemory device_memory(size_t bytes) { return *device().allocate(bytes); }
  DeviceMemory host_memory(size_t bytes) { return *device().allocate_host(bytes); }

  const uint64_t seed_;
  std::unique_ptr<DeviceUnderTest> under_test_;
};

INSTANTIATE_TEST_SUITE_P(All, EveryDevice, testing::ValuesIn(kDeviceKinds),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(EveryDevice, memory_is_aligned_and_zeroed) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{4097}, size_t{3} << 20}) {
    const DeviceMemory memory = device_memory(bytes);
    const DeviceMemory host = host_memory(bytes);
    for (const DeviceMemory& one : {memory, host}) {
      EXPECT_EQ(one.bytes, bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(one.data) % 4096, 0u);
    }
    EXPECT_TRUE(
        std::all_of(host.data, host.data + bytes, [](auto b) { return b == std::byte{0}; }));
    std::memset(host.data, 0xee, bytes);
    device().copy_out().copy(host.data, memory.data, bytes);
    finish(device().copy_out());
    EXPECT_TRUE(
        std::all_of(host.data, host.data + bytes, [](auto b) { return b == std::byte{0}; }));
  }
}

TEST_P(EveryDevice, too_much_memory_is_an_error_and_no_memory_is_none) {
  EXPECT_EQ(device().allocate(0)->data, nullptr);
  EXPECT_EQ(device().allocate_host(0)->data, nullptr);
  for (const size_t bytes : {size_t{1} << 60, SIZE_MAX}) {
    EXPECT_EQ(device().allocate(bytes).error().code, ErrorCode::kResourceExhausted);
    EXPECT_EQ(device().allocate_host(bytes).error().code, ErrorCode::kResourceExhausted);
  }
  EXPECT_EQ(device().failure(), nullptr);
}

TEST_P(EveryDevice, copies_of_every_size_copy_all_and_no_more) {
  constexpr size_t kMost = 100'000;
  const DeviceMemory from = host_memory(kMost), to = host_memory(kMost + 1);
  const DeviceMemory there = device_memory(kMost);
  for (const size_t bytes : {0, 1, 4095, 4096, 4097, 12287, 12288, 12289, 100'000}) {
    for (Stream* const stream : streams()) {
      for (size_t i = 0; i < bytes; ++i) from.data[i] = static_cast<std::byte>(i * 7 + bytes);
      std::memset(to.data, 0xee, kMost + 1);
      stream->copy(there.data, from.data, bytes);
      stream->copy(to.data, there.data, bytes);  // after the one before
      finish(*stream);
      ASSERT_TRUE(std::equal(from.data, from.data + bytes, to.data));
      ASSERT_EQ(to.data[bytes], std::byte{0xee});
    }
  }
}

// A random program over the three streams. Each piece of work appends to its stream's own log,
// without any lock; a wait() on an event makes the next one look at the other stream's log, which
// must hold at least what was there at record(). Under TSan a missing order is a reported race.
struct Program {
  explicit Program(DeviceUnderTest& on) : under_test(on) {
    for (auto& event : events) event = on.device().make_event();
    for (auto& log : logs) log.reserve(1000);  // data() stays
  }
  Stream& stream(size_t i) const {
    Device& device = under_test.device();
    return i == 0 ? device.compute() : i == 1 ? device.copy_in() : device.copy_out();
  }
  void launch(size_t at) {
    under_test.run(stream(at),
                   [this, at] { logs[at].push_back(static_cast<uint32_t>(logs[at].size())); });
    ++launched[at];
  }
  void record(size_t at) {
    if (!events[at]->done()) return;  // may be recorded again only then
    stream(at).record(*events[at]);
    recorded[at] = launched[at];
  }
  void wait(size_t at, size_t on) {
    if (at == on) return;
    stream(at).wait(*events[on]);
    under_test.run(stream(at), [this, on, least = recorded[on]] {
      // The log may grow while we look: only what the event ordered is touched.
      for (uint32_t i = 0; i < least; ++i) CHECK(logs[on].data()[i] == i);
    });
  }

  DeviceUnderTest& under_test;
  std::array<std::vector<uint32_t>, 3> logs;
  std::array<uint32_t, 3> launched{}, recorded{};
  std::array<std::unique_ptr<Event>, 3> events;
};

TEST_P(EveryDevice, streams_run_in_order_and_events_order_them) {
  Prng random(seed_);
  for (int program_index = 0; program_index < 60; ++program_index) {
    Program program(*under_test_);
    const uint64_t steps = random.below(150);
    for (uint64_t i = 0; i < steps; ++i) {
      const size_t at = random.below(3);
      switch (random.below(3)) {
        case 0:
          program.launch(at);
          break;
        case 1:
          program.record(at);
          break;
        case 2:
          program.wait(at, random.below(3));
          break;
      }
    }
    for (size_t at = 0; at < 3; ++at) finish(program.stream(at));
    for (size_t at = 0; at < 3; ++at) {
      ASSERT_EQ(program.logs[at].size(), program.launched[at]) << "seed " << seed_;
      for (uint32_t i = 0; i < program.launched[at]; ++i) ASSERT_EQ(program.logs[at][i], i);
      EXPECT_TRUE(program.events[at]->done());
    }
  }
}

// The engine's way: coroutines on one loop that enqueue, await, look, and enqueue again.
Task<> pipeline(Device* device, Stream* stream, uint32_t rounds, uint32_t* done_rounds) {
  constexpr size_t kBytes = 64 * sizeof(uint64_t);
  const auto event = device->make_event();
  EXPECT_TRUE(event->done());
  const auto loop_thread = std::this_thread::get_id();
  const DeviceMemory from = *device->allocate_host(kBytes), to = *device->allocate_host(kBytes);
  const DeviceMemory there = *device->allocate(kBytes);
  for (uint32_t round = 1; round <= rounds; ++round) {
    std::memset(from.data, static_cast<int>(round), kBytes);
    stream->copy(there.data, from.data, kBytes);
    stream->copy(to.data, there.data, kBytes);
    stream->record(*event);
    co_await event->wait();
    CHECK(std::this_thread::get_id() == loop_thread);
    CHECK(event->done());
    CHECK(std::memcmp(to.data, from.data, kBytes) == 0);
    ++*done_rounds;
  }
}

TEST_P(EveryDevice, events_resume_coroutines_on_their_loop) {
  const RealClock clock;
  EventfdParker parker;
  EngineLoop loop(clock, parker);
  uint32_t done_rounds = 0;
  const auto main = [](EngineLoop* on, Device* with, uint32_t* done) -> Task<> {
    Scope scope(on->executor());
    for (int i = 0; i < 4; ++i) {
      scope.spawn(pipeline(with, &with->compute(), 100, done));
      scope.spawn(pipeline(with, &with->copy_in(), 100, done));
      scope.spawn(pipeline(with, &with->copy_out(), 100, done));
    }
    co_await scope.join();
  };
  loop.run(main(&loop, &device(), &done_rounds));
  EXPECT_EQ(done_rounds, 1200u);
}

Task<> wait_and_count(Event* event, int* count) {
  co_await event->wait();
  ++*count;
}

TEST_P(EveryDevice, many_may_await_one_event) {
  const RealClock clock;
  EventfdParker parker;
  EngineLoop loop(clock, parker);
  const auto event = device().make_event();
  std::atomic<bool> go{false};
  run(device().compute(), [&] {
    while (!go.load()) std::this_thread::sleep_for(1ms);
  });
  device().compute().record(*event);
  int count = 0;
  const auto main = [](EngineLoop* on, Event* awaited, std::atomic<bool>* start,
                       int* done) -> Task<> {
    Scope scope(on->executor());
    for (int i = 0; i < 10; ++i) scope.spawn(wait_and_count(awaited, done));
    co_await on->sleep_for(5ms, scope.stop());
    EXPECT_FALSE(awaited->done());
    EXPECT_EQ(*done, 0);
    start->store(true);
    co_await scope.join();
  };
  loop.run(main(&loop, event.get(), &go, &count));
  EXPECT_EQ(count, 10);
}

TEST_P(EveryDevice, an_event_may_die_while_a_stream_has_yet_to_look_at_it) {
  std::atomic<bool> go{false};
  bool after = false;
  run(device().copy_in(), [&] {
    while (!go.load()) std::this_thread::sleep_for(1ms);
  });
  {
    const auto event = device().make_event();
    device().compute().record(*event);
    device().copy_in().wait(*event);
    block_until_done(*event);
  }
  run(device().copy_in(), [&] { after = true; });
  go.store(true);
  finish(device().copy_in());
  EXPECT_TRUE(after);
}

int64_t cpu_us() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

TEST_P(EveryDevice, an_idle_device_uses_no_processor) {
  finish(device().compute());
  std::this_thread::sleep_for(20ms);
  const int64_t before = cpu_us();
  std::this_thread::sleep_for(200ms);
  EXPECT_LT(cpu_us() - before, 5'000);
}

// A loop on which nobody awaits an event sleeps as if there were no device.
TEST_P(EveryDevice, an_idle_loop_uses_no_processor) {
  const RealClock clock;
  EventfdParker parker;
  EngineLoop loop(clock, parker);
  const auto main = [](EngineLoop* on, Device* with) -> Task<> {
    const auto event = with->make_event();
    with->compute().record(*event);
    co_await event->wait();
    StopFlag stop;
    const int64_t before = cpu_us();
    co_await on->sleep_for(200ms, stop);
    EXPECT_LT(cpu_us() - before, 5'000);
  };
  loop.run(main(&loop, &device()));
}

TEST_P(EveryDevice, a_gate_holds_what_is_behind_it_until_it_has_risen_that_far) {
  if (!device().has_gates()) GTEST_SKIP() << "a device without gates";
  const auto gate = device().make_gate();
  std::atomic<uint32_t> ran{0};
  for (uint32_t level = 0; level <= 4; ++level) {
    device().compute().wait(*gate, level);
    run(device().compute(), [&ran, level] { ran = level + 1; });
  }
  const auto done = device().make_event();
  device().compute().record(*done);
  const auto reaches = [&](uint32_t count) {
    while (ran < count) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(5ms);
    return ran == count;
  };
  EXPECT_TRUE(reaches(1));
  gate->raise(2);
  EXPECT_TRUE(reaches(3));
  gate->raise(1);  // never down
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(ran, 3u);
  gate->raise(4);
  block_until_done(*done);
  EXPECT_EQ(ran, 5u);
  EXPECT_FALSE(gate->abandoned());
}

TEST_P(EveryDevice, an_abandoned_gate_is_open_also_once_it_is_gone) {
  if (!device().has_gates()) GTEST_SKIP() << "a device without gates";
  auto gate = device().make_gate();
  std::atomic<uint32_t> ran{0};
  device().compute().wait(*gate, 7);
  run(device().compute(), [&ran] { ++ran; });
  gate->raise(6);
  gate->abandon();
  EXPECT_TRUE(gate->abandoned());
  gate.reset();
  finish(device().compute());
  EXPECT_EQ(ran, 1u);
}

}  // namespace
}  // namespace spillway::kernels
