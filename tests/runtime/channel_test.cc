#include "runtime/channel.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/eventfd_parker.h"
#include "runtime/scope.h"
#include "tests/sim/cancel_after_every_event.h"

namespace spillway {
namespace {

using namespace std::chrono_literals;
using sim::SimulatedLoop;
using Item = std::unique_ptr<int>;  // move only, and freed exactly once

RC_GTEST_PROP(channel, is_a_bounded_queue, ()) {
  const size_t capacity = *rc::gen::inRange<size_t>(1, 6);
  Channel<Item> channel(capacity);
  std::deque<int> model;
  const auto actions = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-60, 100));
  for (const int action : actions) {
    if (action >= 0) {
      auto item = std::make_unique<int>(action);
      const bool pushed = channel.try_push(std::move(item));
      RC_ASSERT(pushed == (model.size() < capacity));
      RC_ASSERT((item == nullptr) == pushed);  // a refused value stays with its owner
      if (pushed) model.push_back(action);
    } else {
      const auto popped = channel.try_pop();
      RC_ASSERT(popped.has_value() == !model.empty());
      if (popped) {
        RC_ASSERT(**popped == model.front());
        model.pop_front();
      }
    }
    RC_ASSERT(channel.size() == model.size());
  }
}

struct Pipe {
  SimulatedLoop& sim;
  std::vector<int> delays_ms;
  std::unique_ptr<Channel<Item>> channel = std::make_unique<Channel<Item>>(2);
  size_t pushed = 0, popped = 0;

  static Task<> produce(Pipe* pipe, StopFlag* stop) {
    for (const int delay : pipe->delays_ms) {
      (void)co_await pipe->sim.loop.sleep_for(std::chrono::milliseconds(delay), *stop);
      if (stop->stopped()) co_return;
      if (pipe->channel->try_push(std::make_unique<int>(pipe->pushed))) ++pipe->pushed;
    }
    pipe->channel->close();
  }
  static Task<> consume(Pipe* pipe, StopFlag* stop) {
    for (;;) {
      Result<Item> item = co_await pipe->channel->pop(*stop);
      if (!item.has_value()) {
        const bool stopped = stop->stopped();
        CHECK(item.error().code == (stopped ? ErrorCode::kCancelled : ErrorCode::kUnavailable));
        co_return;
      }
      CHECK(**item == static_cast<int>(pipe->popped));
      ++pipe->popped;
    }
  }
  void start(Scope& scope) {
    scope.spawn(consume(this, &scope.stop()));
    scope.spawn(produce(this, &scope.stop()));
  }
  void check(bool cancelled) const {
    CHECK(popped + channel->size() == pushed);
    if (!cancelled) CHECK(popped == pushed);
  }
};

RC_GTEST_PROP(channel, loses_nothing_when_cancelled_after_every_event, ()) {
  const auto delays = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 3));
  sim::cancel_after_every_event([&](SimulatedLoop& sim) { return Pipe{sim, delays}; });
}

// Producers on threads of their own, retrying what the bound refuses; the consumer sleeps in
// between. Every value arrives once, in its producer's order.
TEST(channel, threads_deliver_every_value_to_a_consumer_that_sleeps) {
  constexpr uint64_t kThreads = 3, kEach = 20000;
  RealClock clock;
  EventfdParker parker;
  EngineLoop loop(clock, parker);
  Channel<uint64_t> channel(16);
  std::vector<std::thread> producers;
  for (uint64_t t = 0; t < kThreads; ++t) {
    producers.emplace_back([&channel, t] {
      for (uint64_t i = 0; i < kEach;) {
        uint64_t value = t << 32 | i;
        if (channel.try_push(std::move(value))) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  const auto main = [](Channel<uint64_t>* from) -> Task<> {
    StopFlag stop;
    std::vector<uint64_t> next(kThreads, 0);
    for (uint64_t n = 0; n < kThreads * kEach; ++n) {
      const Result<uint64_t> value = co_await from->pop(stop);
      CHECK(value.has_value());
      CHECK((*value & 0xffffffff) == next[*value >> 32]++);
    }
  };
  loop.run(main(&channel));
  for (auto& producer : producers) producer.join();
  EXPECT_EQ(channel.size(), 0u);
}

// The consumer gives up on a pop again and again, while a thread pushes: whether the push or the
// stop comes first, each value is popped once.
TEST(channel, a_pop_that_is_cancelled_while_a_thread_pushes_loses_nothing) {
  RealClock clock;
  EventfdParker parker;
  EngineLoop loop(clock, parker);
  Channel<uint64_t> channel(4);
  std::atomic<bool> end{false};
  uint64_t pushed = 0;
  std::thread producer([&] {
    while (!end.load()) {
      uint64_t value = pushed;
      if (channel.try_push(std::move(value))) {
        ++pushed;
      } else {
        std::this_thread::yield();
      }
    }
  });
  const auto pop_one = [](Channel<uint64_t>* from, StopFlag* stop, uint64_t* next) -> Task<> {
    const Result<uint64_t> value = co_await from->pop(*stop);
    if (value.has_value()) CHECK(*value == (*next)++);
  };
  const auto stop_now = [](StopFlag* stop) -> Task<> {
    stop->stop();
    co_return;
  };
  uint64_t next = 0;
  // And on where the system has not let the producer run by then.
  for (int round = 0; round < 20000 || next == 0; ++round) {
    StopFlag stop;
    Scope scope(loop.executor());
    scope.spawn(pop_one(&channel, &stop, &next));
    scope.spawn(stop_now(&stop));
    while (scope.running() > 0) {
      if (!loop.run_one()) loop.park();
    }
  }
  end.store(true);
  producer.join();
  while (const auto value = channel.try_pop()) CHECK(*value == next++);
  EXPECT_EQ(next, pushed);
}

}  // namespace
}  // namespace spillway
