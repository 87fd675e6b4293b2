#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>

#include "io/make_ring.h"
#include "io/uring_parker.h"
#include "runtime/engine_loop.h"
#include "runtime/eventfd_parker.h"
#include "tests/sim/refuse_io_uring.h"

namespace spillway::io {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::unique_ptr<Parker> ring() {
  auto made = UringParker::create();
  if (!made) return nullptr;
  return std::move(*made);
}

// Every behaviour holds for both; where this machine refuses io_uring its half is skipped.
class ParkerTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    parker_ = GetParam() == std::string("io_uring") ? ring() : std::make_unique<EventfdParker>();
    if (parker_ == nullptr) GTEST_SKIP() << "io_uring is refused here";
  }
  std::unique_ptr<Parker> parker_;
};

TEST_P(ParkerTest, says_what_it_is) { EXPECT_EQ(parker_->description(), GetParam()); }

TEST_P(ParkerTest, a_timeout_ends_the_park_and_not_earlier) {
  for (const auto timeout : {0ms, 1ms, 30ms}) {
    const auto begin = Clock::now();
    parker_->park(timeout);
    EXPECT_GE(Clock::now() - begin, timeout);
  }
}

TEST_P(ParkerTest, a_wake_that_came_first_ends_the_next_park) {
  parker_->wake();
  parker_->wake();
  const auto begin = Clock::now();
  parker_->park(10s);
  EXPECT_LT(Clock::now() - begin, 5s);
  parker_->park(1ms);  // may return early; what follows is the point
  const auto again = Clock::now();
  parker_->park(20ms);
  EXPECT_GE(Clock::now() - again, 20ms);  // both wakes are used up
}

// Each post finds the loop parked, or about to park: no wake-up may be lost, and with a timer set
// neither may the timer.
TEST_P(ParkerTest, every_single_post_wakes_a_parked_loop) {
  const RealClock clock;
  EngineLoop loop(clock, *parker_);
  std::atomic<uint32_t> handled{0};
  constexpr uint32_t kPosts = 3000;
  std::thread poster([&] {
    for (uint32_t i = 0; i < kPosts; ++i) {
      asio::post(loop.executor(), [&] { handled.fetch_add(1); });
      while (handled.load() != i + 1) std::this_thread::yield();
    }
  });
  while (handled.load() < kPosts) {
    if (!loop.run_one()) loop.park();
  }
  poster.join();
}

Task<> tick(EngineLoop* loop, int ticks) {
  StopFlag stop;
  for (int i = 0; i < ticks; ++i) {
    const auto begin = loop->clock().now();
    EXPECT_TRUE((co_await loop->sleep_for(2ms, stop)).has_value());
    EXPECT_GE(loop->clock().now() - begin, 2ms);
  }
}

TEST_P(ParkerTest, a_loop_that_waits_for_timers_uses_no_processor) {
  const RealClock clock;
  EngineLoop loop(clock, *parker_);
  const auto cpu_us = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  const int64_t before = cpu_us();
  loop.run(tick(&loop, 100));  // 200 ms
  EXPECT_LT(cpu_us() - before, 50'000);
}

TEST_P(ParkerTest, may_be_made_on_one_thread_and_used_on_another) {
  const RealClock clock;
  EngineLoop loop(clock, *parker_);
  std::thread([&] { loop.run(tick(&loop, 2)); }).join();
}

INSTANTIATE_TEST_SUITE_P(both, ParkerTest, testing::Values("io_uring", "ppoll"),
                         [](const auto& info) { return std::string(info.param); });

TEST(make_parker, says_why_when_it_does_not_take_io_uring) {
  const ChosenParker chosen = make_parker();
  EXPECT_EQ(chosen.parker->description() == "io_uring", chosen.why_not_io_uring.empty());
}

// case S15: refused for real, by a filter in a forked child. Whatever call is refused, with
// whatever error, the loop runs on ppoll: a timer, and a wake-up from another thread.
[[noreturn]] void live_without(const std::vector<uint32_t>& calls, int error_number) {
  CHECK(sim::refuse_calls(calls, static_cast<uint32_t>(error_number)));
  const ChosenParker chosen = make_parker();
  CHECK(chosen.parker->description() == "ppoll");
  CHECK(chosen.why_not_io_uring.find("io_uring") != std::string::npos);
  const RealClock clock;
  EngineLoop loop(clock, *chosen.parker);
  loop.run(tick(&loop, 3));
  std::atomic<bool> posted{false};
  std::thread poster([&] { asio::post(loop.executor(), [&] { posted.store(true); }); });
  while (!posted.load()) {
    if (!loop.run_one()) loop.park();
  }
  poster.join();
  std::fprintf(stderr, "%s", chosen.why_not_io_uring.c_str());
  std::_Exit(0);
}

using RefusalDeathTest = testing::Test;

TEST(RefusalDeathTest, a_refused_io_uring_falls_back_to_ppoll_and_says_why) {
  EXPECT_EXIT(live_without(sim::kIoUringCalls, EPERM), testing::ExitedWithCode(0),
              "io_uring_setup was refused: Operation not permitted");
  EXPECT_EXIT(live_without(sim::kIoUringCalls, ENOSYS), testing::ExitedWithCode(0),
              "io_uring_setup was refused: Function not implemented");
  EXPECT_EXIT(live_without(sim::kIoUringCalls, ENOMEM), testing::ExitedWithCode(0),
              "io_uring_setup was refused: Cannot allocate memory");
  EXPECT_EXIT(live_without({SYS_io_uring_setup}, EPERM), testing::ExitedWithCode(0),
              "io_uring_setup was refused");
}

TEST(RefusalDeathTest, a_refused_second_call_falls_back_too) {
  if (ring() == nullptr) GTEST_SKIP() << "io_uring is refused here";
  EXPECT_EXIT(live_without({SYS_io_uring_enter}, EPERM), testing::ExitedWithCode(0),
              "io_uring_enter was refused");
  EXPECT_EXIT(live_without({SYS_io_uring_register}, EPERM), testing::ExitedWithCode(0),
              "io_uring_register was refused");
}

}  // namespace
}  // namespace spillway::io
