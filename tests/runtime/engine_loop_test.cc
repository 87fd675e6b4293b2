#include "runtime/engine_loop.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <thread>
#include <vector>

#include "runtime/eventfd_parker.h"
#include "runtime/scope.h"
#include "runtime/suspend.h"
#include "tests/sim/simulated_loop.h"

namespace spillway {
namespace {

using namespace std::chrono_literals;
using sim::SimulatedLoop;

Task<> sleeper(SimulatedLoop* sim, int at_ms, StopFlag* stop, std::vector<int>* woken) {
  const auto at = Clock::TimePoint(std::chrono::milliseconds(at_ms));
  const Result<> slept = co_await sim->loop.sleep_until(at, *stop);
  EXPECT_TRUE(slept.has_value());
  EXPECT_GE(sim->clock.now(), at);
  woken->push_back(at_ms);
}

RC_GTEST_PROP(engine_loop, sleepers_wake_in_order_at_their_time, (std::vector<uint8_t> times)) {
  SimulatedLoop sim;
  Scope scope(sim.loop.executor());
  std::vector<int> woken;
  for (const int time : times) scope.spawn(sleeper(&sim, time, &scope.stop(), &woken));
  sim.run(scope, 1'000'000);
  std::vector<int> expected(times.begin(), times.end());
  std::sort(expected.begin(), expected.end());
  RC_ASSERT(woken == expected);
  const int last = expected.empty() ? 0 : expected.back();
  RC_ASSERT(sim.clock.now().time_since_epoch() == std::chrono::milliseconds(last));
}

struct RealLoop {
  RealClock clock;
  EventfdParker parker;
  EngineLoop loop;
  explicit RealLoop(uint32_t mailbox_max = EngineLoop::kMailboxMax)
      : loop(clock, parker, mailbox_max) {}
};

Task<> sleep_for(EngineLoop* loop, Clock::Duration time, StopFlag* stop) {
  const auto slept = co_await loop->sleep_for(time, *stop);
  EXPECT_TRUE(slept.has_value());
}

TEST(engine_loop, a_real_timer_waits_without_using_the_processor) {
  RealLoop real;
  StopFlag stop;
  const auto cpu_time = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_utime.tv_sec * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_sec * 1'000'000 + usage.ru_stime.tv_usec;
  };
  const auto begin = real.clock.now();
  const int64_t cpu_begin_us = cpu_time();
  real.loop.run(sleep_for(&real.loop, 100ms, &stop));
  EXPECT_GE(real.clock.now() - begin, 100ms);
  EXPECT_LT(cpu_time() - cpu_begin_us, 10'000);
}

// Posts from many threads through a mailbox that is far too small for them: all run, once, on the
// loop's thread, in the order in which each thread posted them.
void post_from_threads(uint32_t threads, uint32_t posts, uint32_t mailbox_max) {
  RealLoop real(mailbox_max);
  std::vector<std::vector<uint32_t>> got(threads);
  const auto main = [](EngineLoop* loop, std::vector<std::vector<uint32_t>>* into, uint32_t each,
                       std::vector<std::thread>* posters) -> Task<> {
    const auto loop_thread = std::this_thread::get_id();
    for (uint32_t t = 0; t < into->size(); ++t) {
      posters->emplace_back([=] {
        for (uint32_t i = 0; i < each; ++i) {
          asio::post(loop->executor(), [=] {
            CHECK(std::this_thread::get_id() == loop_thread);
            (*into)[t].push_back(i);
          });
        }
      });
    }
    StopFlag stop;
    for (uint32_t t = 0; t < into->size(); ++t) {
      while ((*into)[t].size() < each) (void)co_await loop->sleep_for(1ms, stop);
    }
  };
  std::vector<std::thread> posters;
  real.loop.run(main(&real.loop, &got, posts, &posters));
  for (auto& poster : posters) poster.join();
  for (const auto& list : got) {
    ASSERT_EQ(list.size(), posts);
    for (uint32_t i = 0; i < posts; ++i) ASSERT_EQ(list[i], i);
  }
}

TEST(engine_loop, a_full_mailbox_makes_posters_wait_and_loses_nothing) {
  post_from_threads(4, 5000, 3);
}

TEST(engine_loop, a_roomy_mailbox_keeps_each_threads_order) { post_from_threads(4, 20000, 65536); }

// A post between the loop's last look at its mailbox and park() wakes nobody, so park() must see
// it.
TEST(engine_loop, does_not_park_on_mail_that_has_come) {
  struct CountingParker final : Parker {
    void park(std::optional<std::chrono::nanoseconds>) override { ++parks; }
    void wake() override { ++wakes; }
    std::string description() const override { return "counting"; }
    int parks = 0, wakes = 0;
  };
  const RealClock clock;
  CountingParker parker;
  EngineLoop loop(clock, parker);
  bool ran = false;
  EXPECT_FALSE(loop.run_one());
  std::thread([&] { asio::post(loop.executor(), [&] { ran = true; }); }).join();
  loop.park();
  EXPECT_EQ(parker.parks, 0);
  EXPECT_EQ(parker.wakes, 0);  // the loop was not parked
  EXPECT_TRUE(loop.run_one());
  EXPECT_TRUE(ran);
  loop.park();
  EXPECT_EQ(parker.parks, 1);
}

// Each post finds the loop parked, or about to park: no wake-up may be lost.
TEST(engine_loop, a_parked_loop_is_woken_by_every_single_post) {
  RealLoop real;
  std::atomic<uint32_t> handled{0};
  constexpr uint32_t kPosts = 3000;
  std::thread poster([&] {
    for (uint32_t i = 0; i < kPosts; ++i) {
      asio::post(real.loop.executor(), [&] { handled.fetch_add(1); });
      while (handled.load() != i + 1) std::this_thread::yield();
    }
  });
  while (handled.load() < kPosts) {
    if (!real.loop.run_one()) real.loop.park();
  }
  poster.join();
}

// A word that nobody tells the loop of. The waiter is what an event of a device is.
struct WordWatch final : EngineLoop::Poller {
  explicit WordWatch(EngineLoop& on) : loop(on) {}
  void start(Resumer resumer) {
    waiter = std::move(resumer);
    loop.add_poller(*this);
  }
  void on_poll() override {
    ++looks;
    if (!word.load()) return;
    loop.remove_poller(*this);
    waiter.resume();
  }
  EngineLoop& loop;
  Resumer waiter;
  std::atomic<bool> word{false};
  uint32_t looks = 0;
};

Task<> wait_for_word(WordWatch* watch) { co_await suspend(*watch); }

TEST(engine_loop, a_poller_sees_what_wakes_nobody) {
  RealLoop real;
  WordWatch watch(real.loop);
  const auto begin = real.clock.now();
  std::thread writer([&] {
    std::this_thread::sleep_for(30ms);
    watch.word.store(true);
  });
  real.loop.run(wait_for_word(&watch));
  const auto took = real.clock.now() - begin;
  writer.join();
  EXPECT_GE(took, 30ms);
  EXPECT_GE(watch.looks, 2u);
  EXPECT_LE(watch.looks, took / EngineLoop::kPollEvery + 2);
}

TEST(engine_loop, a_loop_with_a_poller_sleeps_shortly_and_else_as_long_as_it_may) {
  SimulatedLoop sim;
  WordWatch one(sim.loop), other(sim.loop);
  Scope scope(sim.loop.executor());
  scope.spawn(wait_for_word(&one));
  scope.spawn(wait_for_word(&other));
  std::vector<int> woken;
  scope.spawn(sleeper(&sim, 3, &scope.stop(), &woken));
  const auto run_what_is_ready = [&sim] {
    while (sim.loop.run_one()) {
    }
  };
  run_what_is_ready();  // all wait
  for (int i = 0; i < 10; ++i) {
    const auto before = sim.clock.now();
    EXPECT_FALSE(sim.loop.run_one());
    sim.loop.park();
    EXPECT_EQ(sim.clock.now() - before, EngineLoop::kPollEvery);
  }
  one.word.store(true);
  run_what_is_ready();
  EXPECT_EQ(scope.running(), 2u);
  EXPECT_GE(other.looks, 10u);
  other.word.store(true);
  run_what_is_ready();
  EXPECT_EQ(scope.running(), 1u);
  const uint32_t looks = one.looks;
  sim.loop.park();  // to the timer at once
  EXPECT_EQ(sim.clock.now().time_since_epoch(), 3ms);
  EXPECT_EQ(one.looks, looks);
  sim.run(scope, 10);
  EXPECT_EQ(scope.running(), 0u);
}

}  // namespace
}  // namespace spillway
