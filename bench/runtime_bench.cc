// What waiting costs: an await, a timer, a wake-up from another thread, a launch on a sleeping
// team. Latencies are medians over many rounds: on a busy machine the mean says more about the
// others.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "io/make_ring.h"
#include "kernels/block_until_done.h"
#include "kernels/cpu_device.h"
#include "runtime/engine_loop.h"
#include "runtime/eventfd_parker.h"
#include "runtime/scope.h"
#include "runtime/suspend.h"

namespace spillway {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

// Collects nanoseconds; reports the median as the benchmark's manual time, and the 90th percentile.
class Latencies {
 public:
  void add(benchmark::State& state, SteadyClock::duration taken) {
    const double ns = static_cast<double>(std::chrono::nanoseconds(taken).count());
    all_.push_back(ns);
    state.SetIterationTime(ns * 1e-9);
  }
  void report(benchmark::State& state) {
    std::sort(all_.begin(), all_.end());
    state.counters["p50_us"] = all_[all_.size() / 2] * 1e-3;
    state.counters["p90_us"] = all_[all_.size() * 9 / 10] * 1e-3;
  }

 private:
  std::vector<double> all_;
};

struct Loop {
  RealClock clock;
  std::unique_ptr<Parker> parker;
  EngineLoop loop;
  explicit Loop(bool ring)
      : parker(ring ? io::make_parker().parker : std::make_unique<EventfdParker>()),
        loop(clock, *parker) {}
};

struct Yield {
  void start(Resumer resumer) { resumer.resume(); }
};

// Each turn suspends, queues behind the other coroutine and resumes.
Task<> take_turns(int64_t turns) {
  Yield yield;
  for (int64_t i = 0; i < turns; ++i) co_await suspend(yield);
}

void await_through_the_queue(benchmark::State& state) {
  Loop on(false);
  const auto main = [](EngineLoop* loop, int64_t turns) -> Task<> {
    Scope scope(loop->executor());
    scope.spawn(take_turns(turns));
    scope.spawn(take_turns(turns));
    co_await scope.join();
  };
  constexpr int64_t kTurns = 10'000;
  for (auto _ : state) on.loop.run(main(&on.loop, kTurns));
  state.SetItemsProcessed(state.iterations() * kTurns * 2);
}
BENCHMARK(await_through_the_queue);

Task<int> value() { co_return 1; }

void await_of_a_task(benchmark::State& state) {
  Loop on(false);
  const auto main = [](int64_t awaits) -> Task<> {
    int64_t sum = 0;
    for (int64_t i = 0; i < awaits; ++i) sum += co_await value();
    benchmark::DoNotOptimize(sum);
  };
  constexpr int64_t kAwaits = 10'000;
  for (auto _ : state) on.loop.run(main(kAwaits));
  state.SetItemsProcessed(state.iterations() * kAwaits);
}
BENCHMARK(await_of_a_task);

void spawn_and_join(benchmark::State& state) {
  Loop on(false);
  const auto nothing = []() -> Task<> { co_return; };
  const auto main = [](EngineLoop* loop, decltype(nothing) task) -> Task<> {
    Scope scope(loop->executor());
    for (int i = 0; i < 1000; ++i) scope.spawn(task());
    co_await scope.join();
  };
  for (auto _ : state) on.loop.run(main(&on.loop, nothing));
  state.SetItemsProcessed(state.iterations() * 1000);
}
BENCHMARK(spawn_and_join);

// From post() on another thread to the work on a loop that sleeps.
void wake_a_parked_loop(benchmark::State& state) {
  Loop on(state.range(0) == 1);
  state.SetLabel(on.parker->description());
  std::atomic<bool> end{false};
  std::atomic<int64_t> started_ns{0};
  std::thread thread([&] {
    while (!end.load()) {
      if (!on.loop.run_one()) on.loop.park();
    }
  });
  Latencies latencies;
  for (auto _ : state) {
    std::this_thread::sleep_for(300us);
    started_ns.store(0);
    const auto begin = SteadyClock::now();
    asio::post(on.loop.executor(), [&] { started_ns.store((SteadyClock::now() - begin).count()); });
    while (started_ns.load() == 0) std::this_thread::sleep_for(50us);
    latencies.add(state, SteadyClock::duration(started_ns.load()));
  }
  asio::post(on.loop.executor(), [&] { end.store(true); });
  thread.join();
  latencies.report(state);
}
BENCHMARK(wake_a_parked_loop)->Arg(0)->Arg(1)->Iterations(1000)->UseManualTime();

// From launch() to the last worker's start. Argument: threads, microseconds of sleep before.
void start_a_launch(benchmark::State& state) {
  const auto threads = static_cast<uint32_t>(state.range(0));
  const auto device = kernels::make_cpu_device({.threads = threads, .level = ""});
  Latencies latencies;
  for (auto _ : state) {
    if (state.range(1) > 0) std::this_thread::sleep_for(std::chrono::microseconds(state.range(1)));
    std::vector<SteadyClock::time_point> started(threads);
    const auto event = device->make_event();
    const auto begin = SteadyClock::now();
    device->compute().launch(
        [&](kernels::Team& team) { started[team.index()] = SteadyClock::now(); });
    device->compute().record(*event);
    kernels::block_until_done(*event);
    latencies.add(state, *std::max_element(started.begin(), started.end()) - begin);
  }
  latencies.report(state);
}
BENCHMARK(start_a_launch)->ArgsProduct({{1, 2}, {0, 1000}})->Iterations(1000)->UseManualTime();

// One launch, an event and its await, from a coroutine on a loop in the ring: the engine's step
// without any work in it.
void step_without_work(benchmark::State& state) {
  const auto device =
      kernels::make_cpu_device({.threads = static_cast<uint32_t>(state.range(0)), .level = ""});
  Loop on(true);
  const auto main = [](kernels::Device* with, int steps, benchmark::State* of,
                       Latencies* into) -> Task<> {
    const auto event = with->make_event();
    for (int i = 0; i < steps; ++i) {
      const auto begin = SteadyClock::now();
      with->compute().launch([](kernels::Team&) {});
      with->compute().record(*event);
      co_await event->wait();
      into->add(*of, SteadyClock::now() - begin);
    }
  };
  Latencies latencies;
  for (auto _ : state) on.loop.run(main(device.get(), 1, &state, &latencies));
  latencies.report(state);
}
BENCHMARK(step_without_work)->Arg(1)->Arg(2)->Iterations(2000)->UseManualTime();

void team_barrier(benchmark::State& state) {
  const auto device =
      kernels::make_cpu_device({.threads = static_cast<uint32_t>(state.range(0)), .level = ""});
  constexpr int kBarriers = 1000;
  for (auto _ : state) {
    const auto event = device->make_event();
    device->compute().launch([](kernels::Team& team) {
      for (int i = 0; i < kBarriers; ++i) team.barrier();
    });
    device->compute().record(*event);
    kernels::block_until_done(*event);
  }
  state.SetItemsProcessed(state.iterations() * kBarriers);
}
BENCHMARK(team_barrier)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace spillway

BENCHMARK_MAIN();
