#include "kernels/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/prng.h"
#include "runtime/scope.h"
#include "tests/kernels/cuda/cuda_machine.h"

namespace spillway::kernels::cuda {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr size_t kPage = 4096;

struct CudaDeviceTest : testing::Test {
  CudaMachine machine;
  emulator::SimulatedCuda& cuda = machine.cuda;
  CudaDevice& device = *machine.make_device();

  DeviceMemory pages(size_t count) { return *device.allocate(count * kPage); }
  DeviceMemory host_pages(size_t count) { return *device.allocate_host(count * kPage); }
};

TEST_F(CudaDeviceTest, says_what_it_is) {
  EXPECT_EQ(device.description(), "cuda simulated, sm_90, 0 GiB");
  EXPECT_TRUE(device.has_gates());
  EXPECT_EQ(device.failure(), nullptr);
}

TEST_F(CudaDeviceTest, copies_that_follow_one_another_are_one_call) {
  const DeviceMemory there = pages(40);
  const DeviceMemory from = host_pages(40), to = host_pages(40);
  for (size_t i = 0; i < 40 * kPage; ++i) from.data[i] = static_cast<std::byte>(i / kPage * 3 + i);
  for (size_t i = 0; i < 40; ++i) {  // scattered: no two are neighbours on both sides
    const size_t at = (i * 7) % 40;
    device.copy_in().copy(there.data + at * kPage, from.data + i * kPage, kPage);
  }
  machine.finish(device.copy_in());
  EXPECT_EQ(cuda.calls("cudaMemcpyBatchAsync"), 1u);
  for (size_t i = 0; i < 40; ++i) {
    const size_t at = (i * 7) % 40;
    device.copy_out().copy(to.data + i * kPage, there.data + at * kPage, kPage);
  }
  machine.finish(device.copy_out());
  EXPECT_EQ(cuda.calls("cudaMemcpyBatchAsync"), 2u);
  EXPECT_EQ(cuda.calls("cudaMemcpyAsync"), 0u);
  EXPECT_EQ(std::memcmp(to.data, from.data, 40 * kPage), 0);
}

TEST_F(CudaDeviceTest, copies_that_depend_on_each_other_keep_their_order) {
  const DeviceMemory there = pages(3);
  const DeviceMemory host = host_pages(3);
  for (uint8_t round = 1; round <= 30; ++round) {  // a batch that had all of it would go wrong
    std::memset(host.data, round, kPage);
    std::memset(host.data + kPage, 0x77, 2 * kPage);
    Stream& stream = device.compute();
    stream.copy(there.data, host.data, kPage);
    stream.copy(there.data + kPage, there.data, kPage);  // reads what the first wrote
    stream.copy(there.data, host.data + kPage, kPage);   // writes what the second reads
    stream.copy(host.data + 2 * kPage, there.data + kPage, kPage);
    machine.finish(stream);
    for (size_t i = 0; i < kPage; ++i) ASSERT_EQ(host.data[2 * kPage + i], std::byte{round});
  }
}

TEST_F(CudaDeviceTest, a_long_run_of_copies_goes_out_in_pieces) {
  const DeviceMemory there = pages(300);
  const DeviceMemory host = host_pages(300);
  for (size_t i = 0; i < 300; ++i) {
    device.copy_in().copy(there.data + i * kPage, host.data + i * kPage, kPage);
  }
  machine.finish(device.copy_in());
  EXPECT_EQ(cuda.calls("cudaMemcpyBatchAsync"), 3u);
}

TEST(CudaDevice, copies_go_one_by_one_where_the_driver_has_no_batches) {
  CudaMachine machine({.batches = false});
  CudaDevice& device = *machine.make_device();
  const DeviceMemory there = *device.allocate(8 * kPage);
  const DeviceMemory host = *device.allocate_host(8 * kPage);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < 8; ++i) {
      device.copy_in().copy(there.data + i * kPage, host.data + i * kPage, kPage);
    }
    machine.finish(device.copy_in());
  }
  EXPECT_EQ(machine.cuda.calls("cudaMemcpyBatchAsync"), 1u);  // asked once
  EXPECT_EQ(machine.cuda.calls("cudaMemcpyAsync"), 16u);
  EXPECT_EQ(device.failure(), nullptr);
}

TEST_F(CudaDeviceTest, nothing_in_a_step_waits_for_the_gpu) {
  const DeviceMemory there = pages(8);
  const DeviceMemory host = host_pages(8);
  const auto early = device.make_event();
  cuda.forbid_waiting(true);
  for (int step = 0; step < 20; ++step) {
    const auto loaded = device.make_event(), stored = device.make_event();
    const auto gate = device.make_gate();
    device.copy_in().copy(there.data, host.data, 4 * kPage);
    device.copy_in().record(*loaded);
    device.compute().wait(*loaded);
    device.compute().wait(*gate, 1);
    machine.run(device.compute(), [&] { there.data[4 * kPage] = std::byte{1}; });
    device.compute().record(*early);
    device.copy_out().wait(*early);
    device.copy_out().copy(host.data + 4 * kPage, there.data + 4 * kPage, kPage);
    device.copy_out().record(*stored);
    gate->raise(1);
    machine.await(*stored);
    EXPECT_EQ(host.data[4 * kPage], std::byte{1});
  }
  cuda.forbid_waiting(false);
  EXPECT_TRUE(cuda.take_misuse().empty());
}

Task<> note_when_done(Event* event, std::string name, std::vector<std::string>* order) {
  co_await event->wait();
  order->push_back(std::move(name));
}

// The event of an operation that takes long wakes its waiter when it comes, however late, and
// whoever waits for another is not kept waiting by it. Meanwhile the loop looks, and time goes on.
TEST_F(CudaDeviceTest, a_late_event_wakes_its_waiter_alone_and_late) {
  const auto late = device.make_event(), soon = device.make_event();
  cuda.hold(device.native(device.compute()), true);
  device.compute().record(*late);
  device.copy_in().record(*soon);
  std::vector<std::string> order;
  const auto main = [](CudaMachine* on, Event* first, Event* second,
                       std::vector<std::string>* into) -> Task<> {
    Scope scope(on->loop.executor());
    scope.spawn(note_when_done(first, "late", into));
    scope.spawn(note_when_done(second, "soon", into));
    const auto slept = co_await on->loop.sleep_for(5ms, scope.stop());
    EXPECT_TRUE(slept.has_value());
    into->push_back("5 ms");
    EXPECT_FALSE(first->done());
    on->cuda.hold(on->device->native(on->device->compute()), false);
    co_await scope.join();
  };
  machine.loop.run(main(&machine, late.get(), soon.get(), &order));
  EXPECT_EQ(order, (std::vector<std::string>{"soon", "5 ms", "late"}));
  EXPECT_EQ(machine.clock.now().time_since_epoch(), 5ms);
  EXPECT_GE(machine.parker.parks, 5ms / EngineLoop::kPollEvery);
}

// Memory belongs to the operation: whoever owns it asks, and then awaits the end.
TEST_F(CudaDeviceTest, a_cancelled_task_still_awaits_its_event) {
  const DeviceMemory there = pages(1);
  const DeviceMemory host = host_pages(1);
  std::memset(host.data, 0x11, kPage);
  const auto event = device.make_event();
  device.copy_in().copy(there.data, host.data, kPage);
  device.copy_in().record(*event);
  std::vector<std::string> order;
  const auto main = [](CudaMachine* on, Event* awaited, std::vector<std::string>* into) -> Task<> {
    Scope scope(on->loop.executor());
    scope.spawn(note_when_done(awaited, "event", into));
    scope.cancel();
    into->push_back("cancelled");
    co_await scope.join();
    EXPECT_TRUE(awaited->done());
  };
  machine.loop.run(main(&machine, event.get(), &order));
  EXPECT_EQ(order, (std::vector<std::string>{"cancelled", "event"}));
}

TEST_F(CudaDeviceTest, an_event_that_is_recorded_again_keeps_its_earlier_waiters) {
  const auto event = device.make_event();
  std::vector<std::string> order;
  const auto main = [](CudaMachine* on, Event* one, std::vector<std::string>* into) -> Task<> {
    Scope scope(on->loop.executor());
    Stream& stream = on->device->compute();
    stream.record(*one);
    scope.spawn(note_when_done(one, "first", into));
    const auto slept = co_await on->loop.sleep_for(1us, scope.stop());
    EXPECT_TRUE(slept.has_value());
    while (!one->done()) on->cuda.step();
    on->cuda.hold(on->device->native(stream), true);
    stream.record(*one);  // before the loop has looked
    scope.spawn(note_when_done(one, "second", into));
    const auto again = co_await on->loop.sleep_for(1ms, scope.stop());
    EXPECT_TRUE(again.has_value());
    EXPECT_EQ(into->size(), 1u);
    on->cuda.hold(on->device->native(stream), false);
    co_await scope.join();
  };
  machine.loop.run(main(&machine, event.get(), &order));
  EXPECT_EQ(order, (std::vector<std::string>{"first", "second"}));
}

// Whichever part of which stream runs next: the event that another stream waited for is done when
// what came behind that wait is, so that its owner may use it again, or let it go.
TEST(CudaDevice, an_event_is_done_before_what_another_stream_does_after_it) {
  const uint64_t seed = test_seed();
  for (uint64_t run = 0; run < 100; ++run) {
    CudaMachine machine({.seed = seed + run});
    CudaDevice& device = *machine.make_device();
    auto before = device.make_event();
    const auto after = device.make_event();
    for (int round = 0; round < 2; ++round) {
      ASSERT_TRUE(before->done());
      device.compute().record(*before);
      device.copy_out().wait(*before);
      device.copy_out().record(*after);
      machine.await(*after);
    }
    before.reset();  // the stream may have yet to come to CUDA's own event
    machine.finish(device.compute());
  }
}

TEST_F(CudaDeviceTest, a_gate_lets_pass_what_waits_for_its_level_or_less) {
  const auto gate = device.make_gate();
  Stream& stream = device.compute();
  uint32_t ran = 0;
  for (uint32_t level = 1; level <= 4; ++level) {
    stream.wait(*gate, level);
    machine.run(stream, [&ran] { ++ran; });
  }
  for (const uint32_t level : {0u, 1u, 3u}) {
    gate->raise(level);
    cuda.run_all();
    EXPECT_EQ(ran, level);
  }
  gate->raise(2);  // never down
  device.copy_in().wait(*gate, 3);
  machine.run(device.copy_in(), [&ran] { ran += 10; });
  cuda.run_all();
  EXPECT_EQ(ran, 13u);
  gate->raise(4);
  machine.finish(stream);
  EXPECT_EQ(ran, 14u);
}

// A gate's word must not be another's while a stream has yet to look at it: the next gate begins at
// level 0, and the stream would stand there for ever.
TEST_F(CudaDeviceTest, a_dead_gates_word_rests_until_its_waits_are_over) {
  cuda.hold(device.native(device.compute()), true);
  uint32_t ran = 0;
  for (uint32_t i = 0; i < 200; ++i) {
    const auto gate = device.make_gate();
    device.compute().wait(*gate, 1 + i);
    machine.run(device.compute(), [&ran] { ++ran; });
    if (i % 2 == 0) {
      gate->raise(1 + i);
    } else {
      gate->abandon();
    }
  }
  const auto closed = device.make_gate();
  device.copy_in().wait(*closed, 1);
  cuda.hold(device.native(device.compute()), false);
  machine.finish(device.compute());
  EXPECT_EQ(ran, 200u);
  closed->raise(1);
  machine.finish(device.copy_in());
  for (uint32_t i = 0; i < 3 * 4096; ++i) {  // words come back: there are fewer
    const auto gate = device.make_gate();
    device.copy_out().wait(*gate, 1);
    gate->raise(1);
    if (i % 100 == 0) machine.finish(device.copy_out());
  }
}

TEST_F(CudaDeviceTest, events_words_come_back) {
  for (uint32_t i = 0; i < 3 * 4096; ++i) {
    const auto event = device.make_event();
    if (i % 64 != 0) continue;
    device.compute().record(*event);
    machine.await(*event);
  }
}

TEST(CudaDevice, without_words_events_are_asked_for_and_there_are_no_gates) {
  CudaMachine machine({.write_words = false});
  CudaDevice& device = *machine.make_device();
  EXPECT_FALSE(device.has_gates());
  const auto event = device.make_event();
  for (int i = 0; i < 3; ++i) {
    machine.run(device.compute(), [] {});
    device.compute().record(*event);
    EXPECT_FALSE(event->done());
    machine.await(*event);
    EXPECT_TRUE(event->done());
  }
  EXPECT_GT(machine.cuda.calls("cudaEventQuery"), 3u);
  EXPECT_EQ(device.failure(), nullptr);
}

TEST(CudaDevice, a_driver_whose_streams_cannot_wait_has_no_gates) {
  CudaMachine machine({.wait_words = false});
  CudaDevice& device = *machine.make_device();
  EXPECT_FALSE(device.has_gates());
  machine.finish(device.compute());
  EXPECT_EQ(machine.cuda.calls("cudaEventQuery"), 0u);  // words all the same
}

TEST(CudaDevice, no_gpu_is_an_error_that_says_so) {
  CudaMachine none({.devices = 0});
  EXPECT_EQ(none.make_device(), nullptr);
  EXPECT_EQ(none.made_error->code, ErrorCode::kUnavailable);
  EXPECT_THAT(none.made_error->message, HasSubstr("no GPU to use"));
  for (const int index : {-1, 7}) {
    const auto wrong = make_cuda_device({.index = index});
    EXPECT_EQ(wrong.error().code, ErrorCode::kUnavailable);
  }
}

TEST(CudaDevice, memory_that_is_not_there_is_an_error_and_no_end) {
  CudaMachine machine({.device_bytes = 1 << 20, .pinned_bytes = 1 << 20});
  CudaDevice& device = *machine.make_device();
  const auto most = device.allocate(900 << 10);
  ASSERT_TRUE(most.has_value());
  const auto refused = device.allocate(200 << 10);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("of 1048576 are free"));
  const auto host = device.allocate_host(1 << 20);
  EXPECT_EQ(host.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(device.failure(), nullptr);
  machine.finish(device.compute());
}

// Pages are read and written by all three streams and by kernels. Each operation is ordered behind
// the last that touched its pages, by an event where that was another stream's; so the bytes are
// those of the same operations one after the other.
class RandomProgram {
 public:
  RandomProgram(CudaMachine& machine, uint64_t seed) : machine_(machine), random_(seed) {
    CudaDevice& device = *machine.device;
    there_ = *device.allocate(kPages / 2 * kPage);
    host_ = *device.allocate_host(kPages / 2 * kPage);
    model_.resize(kPages);
    streams_ = {&device.compute(), &device.copy_in(), &device.copy_out()};
  }
  void run(uint64_t operations) {
    for (uint64_t i = 0; i < operations; ++i) {
      const size_t stream = random_.below(3);
      std::vector<size_t> pages;  // of a few operations behind each other
      for (uint64_t more = 1 + random_.below(4); more > 0; --more) {
        if (random_.below(3) == 0) {
          kernel(stream, pages);
        } else {
          copy(stream, pages);
        }
      }
      touch(stream, pages);
      for (uint64_t steps = random_.below(4); steps > 0; --steps) machine_.cuda.step();
      if (random_.below(10) == 0) {
        const size_t one = random_.below(kPages);
        if (touched_[one] != nullptr) machine_.await(*touched_[one]);
      }
      std::erase_if(dead_, [](const auto& event) { return event->done(); });
    }
    for (Stream* const stream : streams_) machine_.finish(*stream);
  }
  void check() {
    for (size_t page = 0; page < kPages; ++page) {
      const DeviceMemory seen = *machine_.device->allocate_host(kPage);
      machine_.device->compute().copy(seen.data, at(page), kPage);
      machine_.finish(machine_.device->compute());
      for (size_t i = 0; i < kPage; ++i) {
        ASSERT_EQ(static_cast<uint8_t>(seen.data[i]), model_[page]) << "page " << page;
      }
    }
  }

 private:
  static constexpr size_t kPages = 24;  // the first half the GPU's

  std::byte* at(size_t page) {
    return page < kPages / 2 ? there_.data + page * kPage
                             : host_.data + (page - kPages / 2) * kPage;
  }
  void order(size_t stream, std::initializer_list<size_t> pages) {
    for (const size_t page : pages) {
      if (touched_[page] != nullptr && by_[page] != stream) streams_[stream]->wait(*touched_[page]);
    }
  }
  void touch(size_t stream, const std::vector<size_t>& pages) {
    const std::shared_ptr<Event> event = machine_.device->make_event();
    streams_[stream]->record(*event);
    for (const size_t page : pages) {
      if (touched_[page] != nullptr) dead_.push_back(touched_[page]);
      touched_[page] = event;
      by_[page] = stream;
    }
  }
  void kernel(size_t stream, std::vector<size_t>& pages) {
    const size_t page = random_.below(kPages);
    order(stream, {page});
    machine_.run(*streams_[stream], [to = at(page)] {
      for (size_t i = 0; i < kPage; ++i) to[i] = static_cast<std::byte>(3 * uint8_t(to[i]) + 1);
    });
    model_[page] = static_cast<uint8_t>(3 * model_[page] + 1);
    pages.push_back(page);
  }
  void copy(size_t stream, std::vector<size_t>& pages) {
    const size_t from = random_.below(kPages);
    const size_t to = (from + 1 + random_.below(kPages - 1)) % kPages;
    order(stream, {from, to});
    streams_[stream]->copy(at(to), at(from), kPage);
    model_[to] = model_[from];
    pages.insert(pages.end(), {from, to});
  }

  CudaMachine& machine_;
  Prng random_;
  DeviceMemory there_, host_;
  std::array<Stream*, 3> streams_{};
  std::vector<uint8_t> model_;                            // what each byte of a page is
  std::array<std::shared_ptr<Event>, kPages> touched_{};  // the last operation on it
  std::array<size_t, kPages> by_{};
  std::vector<std::shared_ptr<Event>> dead_;  // until done
};

TEST(CudaDevice, a_random_program_gives_what_its_order_says) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < 40; ++i) {
    CudaMachine machine({.seed = seed + i, .write_words = i % 4 != 3, .batches = i % 8 != 0});
    ASSERT_NE(machine.make_device(), nullptr);
    RandomProgram program(machine, seed + i);
    program.run(100);
    program.check();
    EXPECT_EQ(machine.device->failure(), nullptr);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace spillway::kernels::cuda
