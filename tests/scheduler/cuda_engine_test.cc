// The engine with its own thread and tiers, over the CUDA device itself on the simulated runtime
// with a thread a stream, for ThreadSanitizer: nothing but CUDA's streams, events and words orders
// the engine before what the GPU reads and writes. The model needs no operators (fake_model.h), so
// its work runs at full speed.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/engine.h"
#include "tests/scheduler/answer_sink.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/stepped_gpu.h"
#include "tests/temporary_folder.h"

namespace spillway::scheduler {
namespace {

constexpr uint32_t kContext = 400, kPages = 40;
constexpr size_t kPageBytes = 4096;  // the fake model's

// What the fake model makes of the prompt.
std::vector<model::TokenId> expected_tokens(const Request& request) {
  uint64_t chain = 0;
  for (const model::TokenId token : request.prompt) chain = sim::chain_next(chain, token);
  std::vector<model::TokenId> tokens;
  while (tokens.size() < request.stop.max_tokens) {
    tokens.push_back(sim::fake_draw(chain, request.sampling.seed, 0, {}));
    chain = sim::chain_next(chain, tokens.back());
  }
  return tokens;
}

class CudaEngineTest : public testing::TestWithParam<bool> {  // with a host tier
 protected:
  // Nothing of an earlier one but the store.
  void start() {
    gpu_.emplace(emulator::SimulatedCudaOptions{.threads = true, .late_us = 100});
    runner_.emplace(*gpu_, 0, kContext);
    EngineOptions options;
    options.kv_device_bytes = kPages * kPageBytes;
    options.kv_host_bytes = GetParam() ? 2 * kPages * kPageBytes : 0;
    options.kv_nvme_dir = store_.path();
    options.kv_nvme_bytes = uint64_t{8} << 20;
    options.context_tokens_max = kContext;
    options.step_tokens_max = 128;
    options.sequences_max = 4;
    options.load_all = true;
    engine_ = Engine::start(options, *runner_, *gpu_, tokenizer_).value();
  }
  void stop() {
    engine_.reset();
    EXPECT_EQ(runner_->wrong(), 0u);
    runner_.reset();
    EXPECT_EQ(gpu_->end(), "");
    gpu_.reset();
  }

  Request request_of(uint64_t conversation, uint32_t tokens) const {
    Request request;
    for (uint32_t i = 0; i < tokens; ++i) {
      request.prompt.push_back(
          1 + static_cast<model::TokenId>(random_at(conversation, 3, i) % (kVocabulary - 4)));
    }
    request.stop.max_tokens = 4;
    request.stop.ignore_eos = true;
    return request;
  }
  // All at once.
  std::vector<Answer> ask(uint32_t conversations, uint32_t tokens) {
    std::vector<std::shared_ptr<AnswerSink>> sinks;
    for (uint32_t i = 0; i < conversations; ++i) {
      sinks.push_back(std::make_shared<AnswerSink>());
      EXPECT_TRUE(engine_->submit(request_of(i, tokens), sinks.back()).has_value());
    }
    std::vector<Answer> answers;
    for (uint32_t i = 0; i < conversations; ++i) {
      answers.push_back(sinks[i]->wait());
      if (answers[i].finish == FinishReason::kError) continue;
      EXPECT_EQ(answers[i].tokens(), expected_tokens(request_of(i, tokens)));
    }
    return answers;
  }

  static constexpr uint32_t kVocabulary = sim::FakeTokenizer::kVocabulary;
  const TemporaryFolder store_;
  sim::FakeTokenizer tokenizer_;
  std::optional<sim::SteppedGpu> gpu_;
  std::optional<sim::FakeRunner> runner_;
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(All, CudaEngineTest, testing::Bool(), [](const auto& one) {
  return std::string(one.param ? "with_host_memory" : "without_host_memory");
});

TEST_P(CudaEngineTest, answers_are_right_whatever_came_from_the_tiers) {
  start();
  uint64_t from_tiers = 0;
  for (const uint32_t tokens : {150u, 170u, 190u}) {
    for (const Answer& answer : ask(8, tokens)) {
      EXPECT_EQ(answer.finish, FinishReason::kLength) << answer.error;
      from_tiers += answer.usage.host_tokens + answer.usage.nvme_tokens;
    }
  }
  EXPECT_GT(from_tiers, 0u);
  stop();
}

TEST_P(CudaEngineTest, whichever_stream_breaks_the_gpu_the_store_stays_good) {
  for (const uint64_t stream : {0u, 1u, 2u}) {
    SCOPED_TRACE(stream);
    start();
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    do {
      ASSERT_LT(std::chrono::steady_clock::now(), patience);
      ask(8, 150);
    } while (engine_->stats().tiers.nvme.pages < 20);
    gpu_->cuda().fail_stream(gpu_->native(stream), cudaErrorIllegalAddress, 2);
    std::string error;
    for (uint32_t tokens = 160; error.empty(); tokens = 160 + (tokens + 7) % 40) {
      ASSERT_LT(std::chrono::steady_clock::now(), patience);
      for (const Answer& answer : ask(8, tokens)) {
        if (answer.finish == FinishReason::kError) error = answer.error;
      }
    }
    EXPECT_NE(error.find("GPU 0 has failed"), std::string::npos) << error;
    stop();
    start();
    uint64_t from_nvme = 0;
    for (const Answer& answer : ask(8, 200)) {  // all that was asked for before, and more
      EXPECT_EQ(answer.finish, FinishReason::kLength) << answer.error;
      from_nvme += answer.usage.nvme_tokens;
    }
    EXPECT_GT(from_nvme, 0u);
    stop();
  }
}

}  // namespace
}  // namespace spillway::scheduler
