// The engine with its own thread and a real CPU device, called from many threads at once.
#include "scheduler/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "kernels/cpu_device.h"
#include "runtime/prng.h"
#include "tests/scheduler/answer_sink.h"
#include "tests/sim/fake_model.h"

namespace spillway::scheduler {
namespace {

Request request_of(uint64_t seed, uint32_t length, uint32_t max_tokens) {
  Request request;
  for (uint32_t i = 0; i < length; ++i) {
    request.prompt.push_back(1 + static_cast<model::TokenId>(random_at(seed, 0, i) % 20));
  }
  request.stop.max_tokens = max_tokens;
  request.stop.ignore_eos = true;
  return request;
}

class EngineTest : public testing::Test {
 protected:
  EngineTest()
      : device_(kernels::make_cpu_device({.threads = 2, .level = "test"})),
        runner_(*device_, 64, 2000) {}

  std::unique_ptr<Engine> start(EngineOptions options) {
    options.kv_device_bytes = uint64_t{4} << 20;
    auto engine = Engine::start(options, runner_, *device_, tokenizer_);
    EXPECT_TRUE(engine.has_value());
    return std::move(*engine);
  }

  std::unique_ptr<kernels::Device> device_;
  sim::FakeTokenizer tokenizer_;
  sim::FakeRunner runner_;
};

TEST_F(EngineTest, requests_from_many_threads_all_end_and_leave_nothing_behind) {
  auto engine = start({.sequences_max = 16, .step_tokens_max = 256});
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 12; ++i) {
        auto sink = std::make_shared<AnswerSink>();
        const auto id = engine->submit(request_of(t % 3, 40 + 10 * (i % 5), 20), sink);
        ASSERT_TRUE(id.has_value());
        if (i % 4 == 3) engine->cancel(*id);
        const Answer answer = sink->wait();
        if (answer.finish == FinishReason::kLength) {
          ASSERT_EQ(answer.usage.completion_tokens, 20u);
        }
        static_cast<void>(engine->stats());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const EngineStats stats = engine->stats();
  EXPECT_EQ(runner_.wrong(), 0u);
  EXPECT_GT(stats.cached_tokens, 0u);
  std::mutex mutex;
  std::condition_variable cleared;
  bool done = false;
  engine->reset_prefix_cache([&](uint64_t) {
    const std::lock_guard lock(mutex);
    done = true;
    cleared.notify_all();
  });
  std::unique_lock lock(mutex);
  cleared.wait(lock, [&] { return done; });
  for (const PoolStats& pool : engine->stats().pools) EXPECT_EQ(pool.free, pool.capacity);
}

// Looks at the counters when it has its answer, as a client does with /metrics.
class CountingSink final : public OutputSink {
 public:
  explicit CountingSink(std::function<EngineStats()> stats) : stats_(std::move(stats)) {}
  void on_output(Output output) override {
    if (output.done) seen_.set_value(stats_());
  }
  EngineStats wait() { return seen_.get_future().get(); }

 private:
  const std::function<EngineStats()> stats_;
  std::promise<EngineStats> seen_;
};

TEST_F(EngineTest, who_has_his_answer_finds_it_in_the_counters) {
  auto engine = start({});
  for (uint64_t i = 0; i < 3; ++i) {
    Request request = request_of(i, 40, 0);
    request.pin = PinOrder{.id = std::to_string(i), .ttl = std::chrono::seconds(60)};
    auto sink = std::make_shared<CountingSink>([&] { return engine->stats(); });
    ASSERT_TRUE(engine->submit(std::move(request), sink).has_value());
    const EngineStats stats = sink->wait();
    EXPECT_EQ(stats.pins, i + 1);
    EXPECT_EQ(stats.running, 0u);
  }
}

// case A7
TEST_F(EngineTest, a_prompt_longer_than_the_context_is_refused_with_both_counts) {
  auto engine = start({.context_tokens_max = 100});
  const auto id = engine->submit(request_of(1, 100, 1), std::make_shared<AnswerSink>());
  ASSERT_TRUE(id.has_error());
  EXPECT_NE(id.error().message.find("100 tokens"), std::string::npos);
  auto sink = std::make_shared<AnswerSink>();
  ASSERT_TRUE(engine->submit(request_of(1, 99, 50), sink).has_value());
  const Answer answer = sink->wait();
  EXPECT_EQ(answer.usage.completion_tokens, 1u);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
}

TEST_F(EngineTest, more_requests_than_may_wait_are_refused_and_the_others_go_on) {
  auto engine = start({.sequences_max = 2, .waiting_max = 3});
  std::vector<std::shared_ptr<AnswerSink>> sinks;
  uint32_t refused = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    auto sink = std::make_shared<AnswerSink>();
    const auto id = engine->submit(request_of(i, 500, 100), sink);
    if (id.has_value()) {
      sinks.push_back(sink);
    } else {
      EXPECT_EQ(id.error().code, ErrorCode::kResourceExhausted);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0u);
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().usage.completion_tokens, 100u);
}

TEST_F(EngineTest, stopping_ends_open_requests_as_cancelled) {
  auto engine = start({});
  std::vector<std::shared_ptr<AnswerSink>> sinks;
  for (uint64_t i = 0; i < 20; ++i) {
    sinks.push_back(std::make_shared<AnswerSink>());
    ASSERT_TRUE(engine->submit(request_of(i, 300, 1500), sinks.back()).has_value());
  }
  engine.reset();
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->wait().finish, FinishReason::kCancelled);
  }
}

}  // namespace
}  // namespace spillway::scheduler
