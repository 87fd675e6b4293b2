#include "kernels/cpu_device.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/block_until_done.h"
#include "kernels/stamp.h"
#include "runtime/scope.h"

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

TEST(cpu_device, copies_of_every_size_copy_all_and_no_more) {
  const auto device = device_of(3);
  for (const size_t bytes : {0, 1, 4095, 4096, 4097, 12287, 12288, 12289, 100'000}) {
    for (Stream* stream : {&device->compute(), &device->copy_in(), &device->copy_out()}) {
      std::vector<uint8_t> from(bytes), to(bytes + 1, 0xee);
      for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<uint8_t>(i * 7);
      stream->copy(to.data(), from.data(), bytes);
      finish(*device, *stream);
      EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
      EXPECT_EQ(to[bytes], 0xee);
    }
  }
}

// A random program over the three streams. Each launch appends to its stream's own log, without any
// lock; a wait() on an event makes the next launch look at the other stream's log, which must hold
// at least what was there at record(). Under TSan a missing order is a reported race.
struct Program {
  explicit Program(uint32_t threads) : device(device_of(threads)) {
    for (size_t i = 0; i < events.size(); ++i) events[i] = device->make_event();
  }
  Stream& stream(size_t i) const {
    return i == 0 ? device->compute() : i == 1 ? device->copy_in() : device->copy_out();
  }
  void launch(size_t at) {
    stream(at).launch([this, at](Team& team) {
      if (team.index() == 0) logs[at].push_back(static_cast<uint32_t>(logs[at].size()));
    });
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
    stream(at).launch([this, on, least = recorded[on]](Team& team) {
      if (team.index() != 0) return;
      // The log may grow while we look: only what the event ordered is touched.
      for (uint32_t i = 0; i < least; ++i) CHECK(logs[on].data()[i] == i);
    });
  }

  std::array<std::vector<uint32_t>, 3> logs;
  std::array<uint32_t, 3> launched{}, recorded{};
  std::array<std::unique_ptr<Event>, 3> events;
  std::unique_ptr<Device> device;  // dies first
};

RC_GTEST_PROP(cpu_device, streams_run_in_order_and_events_order_them, ()) {
  Program program(*rc::gen::inRange(1u, 4u));
  for (auto& log : program.logs) log.reserve(1000);  // data() stays
  const int steps = *rc::gen::inRange(0, 150);
  for (int i = 0; i < steps; ++i) {
    const size_t at = *rc::gen::inRange<size_t>(0, 3);
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        program.launch(at);
        break;
      case 1:
        program.record(at);
        break;
      case 2:
        program.wait(at, *rc::gen::inRange<size_t>(0, 3));
        break;
    }
  }
  for (size_t at = 0; at < 3; ++at) finish(*program.device, program.stream(at));
  for (size_t at = 0; at < 3; ++at) {
    RC_ASSERT(program.logs[at].size() == program.launched[at]);
    for (uint32_t i = 0; i < program.launched[at]; ++i) RC_ASSERT(program.logs[at][i] == i);
    RC_ASSERT(program.events[at]->done());
  }
}

// The engine's way: coroutines on one loop that enqueue, await, look, and enqueue again.
Task<> pipeline(Device* device, Stream* stream, uint32_t rounds, uint32_t* done_rounds) {
  const auto event = device->make_event();
  EXPECT_TRUE(event->done());
  const auto loop_thread = std::this_thread::get_id();
  std::vector<uint64_t> from(64), to(64);
  for (uint32_t round = 1; round <= rounds; ++round) {
    from.assign(64, round);
    stream->copy(to.data(), from.data(), 64 * sizeof(uint64_t));
    stream->record(*event);
    co_await event->wait();
    CHECK(std::this_thread::get_id() == loop_thread);
    CHECK(event->done());
    CHECK(to == from);
    ++*done_rounds;
  }
}

TEST(cpu_device, events_resume_coroutines_on_their_loop) {
  const auto device = device_of(2);
  const RealClock clock;
  EventfdParker parker;
  EngineLoop loop(clock, parker);
  uint32_t done_rounds = 0;
  const auto main = [](EngineLoop* on, Device* with, uint32_t* done) -> Task<> {
    Scope scope(on->executor());
    for (int i = 0; i < 4; ++i) {
      scope.spawn(pipeline(with, &with->compute(), 500, done));
      scope.spawn(pipeline(with, &with->copy_in(), 500, done));
      scope.spawn(pipeline(with, &with->copy_out(), 500, done));
    }
    co_await scope.join();
  };
  loop.run(main(&loop, device.get(), &done_rounds));
  EXPECT_EQ(done_rounds, 6000u);
}

Task<> wait_and_count(Event* event, int* count) {
  co_await event->wait();
  ++*count;
}

TEST(cpu_device, many_may_await_one_event) {
  const auto device = device_of(2);
  const RealClock clock;
  EventfdParker parker;
  EngineLoop loop(clock, parker);
  const auto event = device->make_event();
  std::atomic<bool> go{false};
  device->compute().launch([&](Team&) {
    while (!go.load()) std::this_thread::sleep_for(1ms);
  });
  device->compute().record(*event);
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

TEST(cpu_device, an_event_may_die_while_a_stream_has_yet_to_look_at_it) {
  const auto device = device_of(2);
  std::atomic<bool> go{false};
  bool after = false;
  device->copy_in().launch([&](Team&) {
    while (!go.load()) std::this_thread::sleep_for(1ms);
  });
  {
    const auto event = device->make_event();
    device->compute().record(*event);
    device->copy_in().wait(*event);
    block_until_done(*event);
  }
  device->copy_in().launch([&](Team&) { after = true; });
  go.store(true);
  finish(*device, device->copy_in());
  EXPECT_TRUE(after);
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

TEST(cpu_device, an_idle_device_uses_no_processor) {
  const auto device = device_of(3);
  finish(*device, device->compute());
  std::this_thread::sleep_for(20ms);
  const int64_t before = cpu_us();
  std::this_thread::sleep_for(200ms);
  EXPECT_LT(cpu_us() - before, 5'000);
}

TEST(cpu_device, a_gate_holds_what_is_behind_it_until_it_has_risen_that_far) {
  const auto device = device_of(3);
  const auto gate = device->make_gate();
  std::atomic<uint32_t> ran{0};
  for (uint32_t level = 0; level <= 4; ++level) {
    device->compute().wait(*gate, level);
    device->compute().launch([&ran, level](Team& team) {
      if (team.index() == 0) ran = level + 1;
    });
  }
  const auto done = device->make_event();
  device->compute().record(*done);
  const auto reaches = [&](uint32_t count) {
    while (ran < count) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(5ms);
    return ran == count;
  };
  EXPECT_TRUE(reaches(1));
  gate->raise(2);
  EXPECT_TRUE(reaches(3));
  gate->raise(1);  // never down
  const int64_t before = cpu_us();
  std::this_thread::sleep_for(100ms);
  EXPECT_LT(cpu_us() - before, 5'000);  // the team sleeps
  EXPECT_EQ(ran, 3u);
  gate->raise(4);
  block_until_done(*done);
  EXPECT_EQ(ran, 5u);
  EXPECT_FALSE(gate->abandoned());
}

TEST(cpu_device, an_abandoned_gate_is_open_also_once_it_is_gone) {
  const auto device = device_of(2);
  auto gate = device->make_gate();
  std::atomic<uint32_t> ran{0};
  device->compute().wait(*gate, 7);
  device->compute().launch([&ran](Team&) { ++ran; });
  gate->raise(6);
  gate->abandon();
  EXPECT_TRUE(gate->abandoned());
  gate.reset();
  finish(*device, device->compute());
  EXPECT_EQ(ran, 2u);
}

}  // namespace
}  // namespace spillway::kernels
