#include "runtime/worker_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine_loop.h"
#include "runtime/eventfd_parker.h"
#include "runtime/scope.h"

namespace spillway {
namespace {

using namespace std::chrono_literals;

struct PoolTest : testing::Test {
  RealClock clock;
  EventfdParker parker;
  EngineLoop loop{clock, parker};
};

TEST_F(PoolTest, results_come_back_on_the_loop_of_who_awaits) {
  WorkerPool pool({.threads = 2, .jobs_max = 8});
  const auto main = [](WorkerPool* on) -> Task<> {
    const auto here = std::this_thread::get_id();
    const auto thread_of_work = [] { return std::this_thread::get_id(); };
    const Result<std::thread::id> there = co_await on->run(thread_of_work);
    EXPECT_NE(*there, here);
    EXPECT_EQ(std::this_thread::get_id(), here);
    const auto nothing = [] {};
    const Result<> done = co_await on->run(nothing);
    EXPECT_TRUE(done.has_value());
    const auto failing = []() -> Result<std::string> { return invalid_argument("a bad text"); };
    const Result<std::string> failed = co_await on->run(failing);
    EXPECT_EQ(failed.error().message, "a bad text");
  };
  loop.run(main(&pool));
}

Task<> add(WorkerPool* pool, uint64_t value, std::atomic<uint64_t>* sum, uint64_t* done,
           uint64_t* refused, StopFlag* stop) {
  const auto work = [value, sum] {
    sum->fetch_add(value);
    return value;
  };
  const Result<uint64_t> result = co_await pool->run(work, *stop);
  if (result.has_value()) {
    EXPECT_EQ(*result, value);
    *done += value;
  } else {
    ++*refused;
  }
}

TEST_F(PoolTest, runs_every_job_it_accepts_once_and_refuses_beyond_its_bound) {
  WorkerPool pool({.threads = 3, .jobs_max = 64});
  std::atomic<uint64_t> sum{0};
  uint64_t done = 0, refused = 0;
  const auto main = [](EngineLoop* on, WorkerPool* jobs, std::atomic<uint64_t>* s, uint64_t* d,
                       uint64_t* r) -> Task<> {
    for (int round = 0; round < 50; ++round) {
      Scope scope(on->executor());
      for (uint64_t i = 1; i <= 200; ++i) scope.spawn(add(jobs, i, s, d, r, &scope.stop()));
      co_await scope.join();
    }
  };
  loop.run(main(&loop, &pool, &sum, &done, &refused));
  EXPECT_EQ(done, sum.load());
  EXPECT_GT(done, 0u);
  EXPECT_EQ(pool.queued(), 0u);
}

// One thread, kept busy: what waits behind it is cancelled, what runs is awaited.
TEST_F(PoolTest, cancel_drops_what_waits_and_awaits_what_runs) {
  WorkerPool pool({.threads = 1, .jobs_max = 4});
  std::atomic<bool> begun{false}, release{false};
  std::atomic<uint64_t> sum{0};
  uint64_t done = 0, refused = 0;
  bool blocker_ended = false;
  const auto block = [](WorkerPool* on, std::atomic<bool>* b, std::atomic<bool>* r, StopFlag* stop,
                        bool* ended) -> Task<> {
    const auto work = [b, r] {
      b->store(true);
      while (!r->load()) std::this_thread::sleep_for(1ms);
    };
    const Result<> result = co_await on->run(work, *stop);
    EXPECT_TRUE(result.has_value());
    *ended = true;
  };
  const auto main = [&](EngineLoop* on) -> Task<> {
    Scope scope(on->executor());
    StopFlag never;
    scope.spawn(block(&pool, &begun, &release, &scope.stop(), &blocker_ended));
    while (!begun.load()) (void)co_await on->sleep_for(1ms, never);
    for (uint64_t i = 1; i <= 6; ++i) {
      scope.spawn(add(&pool, i, &sum, &done, &refused, &scope.stop()));
    }
    while (pool.queued() < 4 || refused < 2) (void)co_await on->sleep_for(1ms, never);
    scope.cancel();
    (void)co_await on->sleep_for(5ms, never);
    EXPECT_EQ(refused, 6u);
    EXPECT_FALSE(blocker_ended);
    release.store(true);
    co_await scope.join();
    EXPECT_TRUE(blocker_ended);
  };
  loop.run(main(&loop));
  EXPECT_EQ(sum.load(), 0u);
}

struct Tally {
  std::atomic<uint32_t> ran{0};
  uint32_t succeeded = 0, cancelled = 0, refused = 0;
};

Task<> one_job(WorkerPool* pool, uint32_t busy_us, Tally* tally, StopFlag* stop) {
  const auto work = [busy_us, tally] {
    std::this_thread::sleep_for(std::chrono::microseconds(busy_us));
    tally->ran.fetch_add(1);
  };
  const Result<> result = co_await pool->run(work, *stop);
  if (result.has_value()) {
    ++tally->succeeded;
  } else {
    ++(result.error().code == ErrorCode::kCancelled ? tally->cancelled : tally->refused);
  }
}

// Jobs of random length, cancelled at a random moment: each one ran and succeeded, or did not run.
RC_GTEST_PROP(worker_pool, a_job_ran_once_or_says_that_it_did_not, ()) {
  const RealClock clock;
  EventfdParker parker;
  EngineLoop loop(clock, parker);
  WorkerPool pool({.threads = *rc::gen::inRange(1u, 4u), .jobs_max = *rc::gen::inRange(1u, 20u)});
  const auto busy_us = *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange(0u, 50u));
  const auto cancel_after = std::chrono::microseconds(*rc::gen::inRange(0, 500));
  Tally tally;
  const auto main = [](EngineLoop* on, WorkerPool* jobs, std::vector<uint32_t> lengths,
                       Clock::Duration until, Tally* into) -> Task<> {
    Scope scope(on->executor());
    for (const uint32_t length : lengths) {
      scope.spawn(one_job(jobs, length, into, &scope.stop()));
    }
    StopFlag never;
    (void)co_await on->sleep_for(until, never);
    scope.cancel();
    co_await scope.join();
  };
  loop.run(main(&loop, &pool, busy_us, cancel_after, &tally));
  RC_ASSERT(tally.ran.load() == tally.succeeded);
  RC_ASSERT(tally.succeeded + tally.cancelled + tally.refused == busy_us.size());
  RC_ASSERT(pool.queued() == 0u);
}

}  // namespace
}  // namespace spillway
