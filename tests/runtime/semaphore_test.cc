#include "runtime/semaphore.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/scope.h"
#include "tests/sim/cancel_after_every_event.h"

namespace spillway {
namespace {

using namespace std::chrono_literals;
using sim::SimulatedLoop;

struct Ask {
  uint64_t units;
  int start_ms;
  int hold_ms;
};

// Coroutines that ask, hold and give back, under a limit that changes. Checks what holds at every
// event: never more units out than there are, and grants in the order of asking. Who waited runs a
// turn after his grant; one who finds units free in that turn runs before him, but not instead.
struct Contention {
  Contention(SimulatedLoop& on, std::vector<Ask> all, uint64_t units,
             std::vector<uint64_t> over_time)
      : sim(on), asks(std::move(all)), capacity(units), limits(std::move(over_time)) {}
  SimulatedLoop& sim;
  const std::vector<Ask> asks;
  const uint64_t capacity;
  const std::vector<uint64_t> limits;
  std::unique_ptr<Semaphore> semaphore = std::make_unique<Semaphore>(capacity);
  std::vector<size_t> asked, granted;
  uint64_t held = 0;

  static Task<> customer(Contention* all, size_t index, StopFlag* stop) {
    const Ask ask = all->asks[index];
    (void)co_await all->sim.loop.sleep_for(std::chrono::milliseconds(ask.start_ms), *stop);
    if (!stop->stopped()) all->asked.push_back(index);
    Result<Permit> permit = co_await all->semaphore->acquire(ask.units, *stop);
    if (!permit.has_value()) {
      CHECK(permit.error().code == ErrorCode::kCancelled);
      co_return;
    }
    CHECK(permit->units() == ask.units);
    all->granted.push_back(index);
    all->held += ask.units;
    CHECK(all->held <= all->capacity);
    const uint64_t out = all->capacity - all->semaphore->available();
    CHECK(all->held <= out);
    if (!stop->stopped()) CHECK(all->held + all->asked_before_and_not_running(index) <= out);
    (void)co_await all->sim.loop.sleep_for(std::chrono::milliseconds(ask.hold_ms), *stop);
    all->held -= ask.units;
  }
  // Units of those before this one who do not run with theirs yet: granted all the same.
  uint64_t asked_before_and_not_running(size_t index) const {
    uint64_t units = 0;
    for (size_t before = 0; asked[before] != index; ++before) {
      if (std::ranges::find(granted, asked[before]) == granted.end()) {
        units += asks[asked[before]].units;
      }
    }
    return units;
  }
  // A limit each millisecond; at last none.
  static Task<> limiter(Contention* all, StopFlag* stop) {
    for (const uint64_t limit : all->limits) {
      all->semaphore->set_limit(limit);
      (void)co_await all->sim.loop.sleep_for(1ms, *stop);
    }
    all->semaphore->set_limit(all->capacity);
  }
  void start(Scope& scope) {
    scope.spawn(limiter(this, &scope.stop()));
    for (size_t i = 0; i < asks.size(); ++i) scope.spawn(customer(this, i, &scope.stop()));
  }
  void check(bool cancelled) const {
    CHECK(held == 0);
    CHECK(semaphore->available() == capacity);
    CHECK(!semaphore->has_waiters());
    CHECK(granted.size() <= asked.size());
    if (!cancelled) CHECK(std::ranges::is_permutation(granted, asked));
  }
};

RC_GTEST_PROP(semaphore, serves_in_order_and_survives_a_cancel_after_every_event, ()) {
  const uint64_t capacity = *rc::gen::inRange<uint64_t>(1, 6);
  std::vector<Ask> asks(*rc::gen::inRange<size_t>(1, 8));
  for (Ask& ask : asks) {
    ask = {*rc::gen::inRange<uint64_t>(0, capacity + 1), *rc::gen::inRange(0, 6),
           *rc::gen::inRange(0, 6)};
  }
  const auto limits =
      *rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(0, capacity + 1));
  sim::cancel_after_every_event(
      [&](SimulatedLoop& sim) { return Contention(sim, asks, capacity, limits); });
}

TEST(semaphore, gives_no_more_than_its_limit_but_to_one_who_is_alone) {
  Semaphore semaphore(10);
  auto first = semaphore.try_acquire(4);
  semaphore.set_limit(5);
  EXPECT_FALSE(semaphore.try_acquire(2).has_value());
  auto second = semaphore.try_acquire(1);
  ASSERT_TRUE(second.has_value());
  semaphore.set_limit(2);  // what is held stays
  EXPECT_EQ(semaphore.available(), 5u);
  first.reset();
  EXPECT_FALSE(semaphore.try_acquire(2).has_value());
  second.reset();
  auto large = semaphore.try_acquire(7);
  EXPECT_TRUE(large.has_value());
  EXPECT_FALSE(semaphore.try_acquire(1).has_value());
}

TEST(semaphore, serves_who_waits_when_its_limit_is_raised) {
  SimulatedLoop sim;
  Semaphore semaphore(4);
  semaphore.set_limit(1);
  StopFlag stop;
  uint64_t got = 0;
  const auto ask = [](Semaphore* from, StopFlag* by, uint64_t* into) -> Task<> {
    Result<Permit> permit = co_await from->acquire(2, *by);
    if (permit) *into = permit->units();
  };
  Scope scope(sim.loop.executor());
  auto held = semaphore.try_acquire(1);
  scope.spawn(ask(&semaphore, &stop, &got));
  while (sim.loop.run_one()) {
  }
  EXPECT_EQ(got, 0u);
  semaphore.set_limit(3);
  sim.run(scope, 100);
  EXPECT_EQ(got, 2u);
}

TEST(semaphore, a_cancelled_large_request_lets_the_small_ones_behind_it_go) {
  SimulatedLoop sim;
  Semaphore semaphore(4);
  StopFlag stop_large, stop_small;
  std::vector<std::string> order;
  const auto ask = [](Semaphore* from, uint64_t units, StopFlag* stop, std::string name,
                      std::vector<std::string>* into) -> Task<> {
    Result<Permit> permit = co_await from->acquire(units, *stop);
    into->push_back(name + (permit.has_value() ? " got" : " cancelled"));
  };
  Scope scope(sim.loop.executor());
  auto held = semaphore.try_acquire(3);
  ASSERT_TRUE(held.has_value());
  scope.spawn(ask(&semaphore, 4, &stop_large, "large", &order));
  scope.spawn(ask(&semaphore, 1, &stop_small, "small", &order));
  while (sim.loop.run_one()) {
  }
  EXPECT_TRUE(order.empty());
  EXPECT_FALSE(semaphore.try_acquire(1).has_value());  // does not overtake
  stop_large.stop();
  sim.run(scope, 100);
  EXPECT_EQ(order, (std::vector<std::string>{"small got", "large cancelled"}));
  held->shrink_to(1);
  EXPECT_EQ(semaphore.available(), 3u);
  Permit moved = std::move(*held);
  EXPECT_EQ(held->units(), 0u);
  moved.release();
  EXPECT_EQ(semaphore.available(), 4u);
}

}  // namespace
}  // namespace spillway
