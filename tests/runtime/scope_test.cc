#include "runtime/scope.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <stdexcept>
#include <vector>

#include "tests/sim/cancel_after_every_event.h"

namespace spillway {
namespace {

using namespace std::chrono_literals;
using sim::SimulatedLoop;

Task<> sleep_then_count(EngineLoop* loop, Clock::Duration time, StopFlag* stop, int* slept,
                        int* cancelled) {
  const Result<> result = co_await loop->sleep_for(time, *stop);
  ++*(result.has_value() ? slept : cancelled);
}

TEST(scope, join_waits_for_every_task) {
  SimulatedLoop sim;
  int slept = 0, cancelled = 0;
  Scope outer(sim.loop.executor());
  const auto main = [](SimulatedLoop* on, int* s, int* c) -> Task<> {
    Scope scope(on->loop.executor());
    for (int i = 0; i < 5; ++i) {
      scope.spawn(sleep_then_count(&on->loop, i * 1ms, &scope.stop(), s, c));
    }
    EXPECT_EQ(scope.running(), 5u);
    co_await scope.join();
    EXPECT_EQ(*s, 5);
    co_await scope.join();  // of an empty scope: at once
  };
  sim.loop.run(main(&sim, &slept, &cancelled));
  EXPECT_EQ(sim.clock.now().time_since_epoch(), 4ms);
  EXPECT_EQ(cancelled, 0);
}

TEST(scope, spawn_never_runs_the_task_inside_the_call) {
  SimulatedLoop sim;
  Scope scope(sim.loop.executor());
  bool ran = false;
  const auto task = [](bool* flag) -> Task<> {
    *flag = true;
    co_return;
  };
  scope.spawn(task(&ran));
  EXPECT_FALSE(ran);
  sim.run(scope, 100);
  EXPECT_TRUE(ran);
  EXPECT_EQ(scope.running(), 0u);
}

TEST(scope, cancel_reaches_inner_scopes_and_later_operations) {
  SimulatedLoop sim;
  int slept = 0, cancelled = 0;
  Scope outer(sim.loop.executor());
  Scope inner(sim.loop.executor(), outer.stop());
  inner.spawn(sleep_then_count(&sim.loop, 1h, &inner.stop(), &slept, &cancelled));
  while (sim.loop.run_one()) {
  }
  EXPECT_EQ(sim.loop.timers(), 1u);
  outer.cancel();
  EXPECT_TRUE(inner.stop().stopped());
  Scope late(sim.loop.executor(), outer.stop());  // born cancelled
  late.spawn(sleep_then_count(&sim.loop, 1h, &late.stop(), &slept, &cancelled));
  sim.run(inner, 100);
  sim.run(late, 100);
  EXPECT_EQ(cancelled, 2);
  EXPECT_EQ(slept, 0);
  EXPECT_EQ(sim.clock.now().time_since_epoch(), 0s);
}

// Between the last task's end and the joiner's turn somebody spawns: join() counts that task too.
TEST(scope, join_counts_a_task_spawned_before_its_turn) {
  SimulatedLoop sim;
  StopFlag never;
  int slept = 0, cancelled = 0;
  bool joined = false;
  Scope scope(sim.loop.executor());
  Scope joiners(sim.loop.executor());
  const auto join = [](Scope* all, bool* done) -> Task<> {
    co_await all->join();
    *done = true;
  };
  scope.spawn(sleep_then_count(&sim.loop, 1ms, &never, &slept, &cancelled));
  joiners.spawn(join(&scope, &joined));
  while (scope.running() > 0) sim.run(scope, 1);
  ASSERT_FALSE(joined);
  scope.spawn(sleep_then_count(&sim.loop, 1ms, &never, &slept, &cancelled));
  while (sim.loop.run_one()) {
  }
  EXPECT_FALSE(joined);
  sim.run(joiners, 100);
  EXPECT_TRUE(joined);
  EXPECT_EQ(slept, 2);
}

// A tree of scopes and sleeps of random shape: wherever it is cancelled, all of it ends.
struct Tree {
  SimulatedLoop& sim;
  std::vector<uint8_t> shape;
  int alive = 0;

  static Task<> node(Tree* tree, size_t at, StopFlag* parent) {
    ++tree->alive;
    Scope scope(tree->sim.loop.executor(), *parent);
    const auto wait = std::chrono::milliseconds(tree->shape[at]);
    const Result<> slept = co_await tree->sim.loop.sleep_for(wait, scope.stop());
    if (slept.has_value()) {
      for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < tree->shape.size(); ++child) {
        scope.spawn(node(tree, child, &scope.stop()));
      }
      if (tree->shape[at] == 9) scope.cancel();  // a node may give up on its children
    }
    co_await scope.join();
    --tree->alive;
  }
  void start(Scope& scope) { scope.spawn(node(this, 0, &scope.stop())); }
  void check(bool) const {
    CHECK(alive == 0);
    CHECK(sim.loop.timers() == 0);
  }
};

RC_GTEST_PROP(scope, cancelling_after_every_event_ends_every_task, ()) {
  const auto shape = *rc::gen::container<std::vector<uint8_t>>(
      *rc::gen::resize(100, rc::gen::inRange(1, 16)), rc::gen::inRange<uint8_t>(0, 10));
  const uint64_t events =
      sim::cancel_after_every_event([&](SimulatedLoop& sim) { return Tree{sim, shape}; });
  RC_CLASSIFY(events > 50u);
  RC_ASSERT(events > 0u);
}

TEST(StopFlagDeathTest, registering_after_the_stop_is_a_bug) {
  struct Deaf final : StopListener {
    void on_stop() override {}
  };
  EXPECT_DEATH(
      {
        StopFlag stop;
        Deaf listener;
        stop.stop();
        stop.add(listener);
      },
      "CHECK failed: !stopped_");
}

TEST(ScopeDeathTest, dying_with_a_task_is_a_bug) {
  EXPECT_DEATH(
      {
        SimulatedLoop sim;
        StopFlag never;
        int n = 0;
        Scope scope(sim.loop.executor());
        scope.spawn(sleep_then_count(&sim.loop, 1h, &never, &n, &n));
      },
      "CHECK failed: running_ == 0");
}

TEST(ScopeDeathTest, a_task_that_throws_ends_the_process_with_its_message) {
  const auto thrower = []() -> Task<> {
    throw std::runtime_error("the reason");
    co_return;
  };
  EXPECT_DEATH(
      {
        SimulatedLoop sim;
        sim.loop.run(thrower());
      },
      "the reason");
}

}  // namespace
}  // namespace spillway
