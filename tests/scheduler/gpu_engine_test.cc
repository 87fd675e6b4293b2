// The real engine, with tiers, over the model on a GPU (its operators on the emulator): its answers
// are those over the CPU's, bit for bit, and a failed operator ends the requests of its step alone.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cpu_device.h"
#include "model/gpu_transformer.h"
#include "model/transformer.h"
#include "scheduler/engine.h"
#include "tests/kernels/cuda/stream_at_once.h"
#include "tests/model/tiny_models.h"
#include "tests/model/toy_vocabulary.h"
#include "tests/scheduler/answer_sink.h"
#include "tests/temporary_folder.h"

namespace spillway::scheduler {
namespace {

enum class Kind { kCpu, kGpu };

// An engine over a tiny model, on pools so small that what it has computed goes down and comes up.
class Served {
 public:
  Served(const model::GgufFile& file, Kind kind)
      : device_(kernels::make_cpu_device({.threads = 1, .level = "test", .pin = false})) {
    vocabulary_.add_all_bytes();
    vocabulary_.add_merge("a", "b");  // it wants one
    tokenizer_ = vocabulary_.tokenizer();
    if (kind == Kind::kGpu) {
      runner_ = model::GpuTransformer::create(
                    file, *device_, {.stream = stream_.get(), .tile_rows = 40, .logit_rows_max = 3})
                    .value();
    } else {
      runner_ = model::Transformer::create(file, *device_,
                                           {.level = kernels::available_cpu_levels().back()})
                    .value();
    }
  }

  // To be called once. The operator behind so many others fails.
  void start(std::optional<uint64_t> fails_in = {}) {
    if (fails_in) stream_.fail_in(*fails_in);
    size_t page_bytes = 0;
    for (const auto& group : runner_->shape().groups) page_bytes += group.page_bytes();
    EngineOptions options;
    options.kv_device_bytes = 24 * page_bytes;
    options.kv_host_bytes = 16 * page_bytes;
    options.kv_nvme_dir = directory_.path();
    options.kv_nvme_bytes = uint64_t{16} << 20;
    options.context_tokens_max = 200;
    options.step_tokens_max = 64;
    options.load_all = true;
    engine_ = Engine::start(options, *runner_, *device_, *tokenizer_).value();
  }

  std::shared_ptr<AnswerSink> submit(Request request) {
    auto sink = std::make_shared<AnswerSink>();
    static_cast<void>(engine_->submit(std::move(request), sink).value());
    return sink;
  }

 private:
  TemporaryFolder directory_;
  kernels::cuda::StreamAtOnce stream_;
  model::ToyVocabulary vocabulary_{"gpt2", "gpt-2"};
  std::unique_ptr<model::Tokenizer> tokenizer_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<model::Runner> runner_;
  std::unique_ptr<Engine> engine_;
};

Request request_of(uint64_t conversation, uint32_t tokens, bool greedy) {
  Request request;
  for (uint32_t i = 0; i < tokens; ++i) {
    request.prompt.push_back(static_cast<model::TokenId>((conversation * 31 + i * i * 7 + i) % 96));
  }
  request.stop.max_tokens = 4;
  request.stop.ignore_eos = true;
  if (greedy) {
    request.sampling.temperature = 0;
  } else {
    request.choices = 2;
    request.sampling.seed = 7;
    request.logprobs = 3;
  }
  return request;
}

// Conversations by turns, more than the device's pages hold.
std::vector<Answer> talk(Served& served) {
  std::vector<Answer> answers;
  for (const uint32_t tokens : {110u, 125u, 140u}) {
    std::vector<std::shared_ptr<AnswerSink>> sinks;
    for (uint64_t conversation = 0; conversation < 4; ++conversation) {
      sinks.push_back(served.submit(request_of(conversation, tokens, conversation % 2 == 0)));
    }
    for (const auto& sink : sinks) answers.push_back(sink->wait());
  }
  return answers;
}

TEST(GpuEngine, answers_are_those_over_the_cpu_whatever_came_from_the_tiers) {
  if (kernels::available_cpu_levels().back() == kernels::CpuLevel::kBaseline) {
    GTEST_SKIP() << "the twin needs FMA";
  }
  for (const char* name : {"qwen2_q8_0", "gemma3_soft_caps"}) {
    SCOPED_TRACE(name);
    const model::TinyModel model(name);
    std::vector<Answer> expected;
    {
      Served cpu(model.file, Kind::kCpu);
      cpu.start();
      expected = talk(cpu);
    }
    Served gpu(model.file, Kind::kGpu);
    gpu.start();
    const std::vector<Answer> answers = talk(gpu);
    ASSERT_EQ(answers.size(), expected.size());
    uint32_t from_below = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(answers[i].finish, FinishReason::kLength);
      EXPECT_EQ(answers[i].tokens().size(), 4u);
      EXPECT_TRUE(answers[i].choices == expected[i].choices);
      from_below += answers[i].usage.host_tokens + answers[i].usage.nvme_tokens;
    }
    EXPECT_GT(from_below, 0u);
  }
}

TEST(GpuEngine, an_operator_that_fails_ends_the_requests_of_its_step) {
  const model::TinyModel model("qwen2_q8_0");
  Served served(model.file, Kind::kGpu);
  served.start(100);  // in the second step
  const Answer failed = served.submit(request_of(1, 100, true))->wait();
  EXPECT_EQ(failed.finish, FinishReason::kError);
  EXPECT_NE(failed.error.find("CUDA error 719"), std::string::npos) << failed.error;
  const Answer good = served.submit(request_of(1, 100, true))->wait();
  EXPECT_EQ(good.finish, FinishReason::kLength);
  EXPECT_EQ(good.tokens().size(), 4u);
}

}  // namespace
}  // namespace spillway::scheduler
