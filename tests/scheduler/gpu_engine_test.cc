// The real engine, with tiers, over the CUDA device on the simulated runtime, with the model's
// operators on the emulator: its answers are those over the CPU's, bit for bit, and whatever fails
// ends requests with a reason and spoils nothing below the device.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/cuda/cuda_device.h"
#include "model/gpu_transformer.h"
#include "model/transformer.h"
#include "scheduler/engine.h"
#include "tests/emulator/simulated_cuda.h"
#include "tests/model/tiny_models.h"
#include "tests/model/toy_vocabulary.h"
#include "tests/scheduler/answer_sink.h"
#include "tests/temporary_folder.h"

namespace spillway::scheduler {
namespace {

enum class Kind { kCpu, kGpu };

// An engine over a tiny model, on pools so small that what it has computed goes down and comes up.
// On a GPU: the CUDA device on the simulated runtime with a thread a stream, all kernels on the
// emulator.
class Served {
 public:
  struct Options {
    emulator::SimulatedCudaOptions cuda = {.threads = true};
    bool host = true;  // a host tier
  };

  // `store` is the folder of its NVMe tier.
  Served(const model::GgufFile& file, Kind kind, const std::string& store)
      : Served(file, kind, store, Options{}) {}
  Served(const model::GgufFile& file, Kind kind, const std::string& store, const Options& options)
      : store_(store), host_(options.host) {
    vocabulary_.add_all_bytes();
    vocabulary_.add_merge("a", "b");  // it wants one
    tokenizer_ = vocabulary_.tokenizer();
    if (kind == Kind::kGpu) {
      make_gpu(file, options.cuda);
    } else {
      device_ = kernels::make_cpu_device({.threads = 1, .level = "test", .pin = false});
      runner_ = model::Transformer::create(file, *device_,
                                           {.level = kernels::available_cpu_levels().back()})
                    .value();
    }
  }

  // To be called once, before anything is submitted. Why not, if it could not.
  std::optional<Error> start() {
    if (error_) return error_;
    size_t page_bytes = 0;
    for (const auto& group : runner_->shape().groups) page_bytes += group.page_bytes();
    EngineOptions options;
    options.kv_device_bytes = 10 * page_bytes;
    options.kv_host_bytes = host_ ? 20 * page_bytes : 0;  // more than is asked for
    options.kv_nvme_dir = store_;
    options.kv_nvme_bytes = uint64_t{16} << 20;
    options.context_tokens_max = 100;
    options.step_tokens_max = 64;
    options.load_all = true;
    auto started = Engine::start(options, *runner_, *device_, *tokenizer_);
    if (!started) return started.error();
    engine_ = *std::move(started);
    return {};
  }

  std::shared_ptr<AnswerSink> submit(Request request) {
    auto sink = std::make_shared<AnswerSink>();
    static_cast<void>(engine_->submit(std::move(request), sink).value());
    return sink;
  }
  Engine& engine() { return *engine_; }
  emulator::SimulatedCuda& cuda() { return *cuda_; }
  CUstream_st* copy_out() { return gpu_->native(gpu_->copy_out()); }
  CUstream_st* compute() { return gpu_->native(gpu_->compute()); }

 private:
  void make_gpu(const model::GgufFile& file, const emulator::SimulatedCudaOptions& options) {
    cuda_.emplace(options);
    auto made = kernels::make_cuda_device({});
    gpu_ = made->get();
    device_ = *std::move(made);
    auto runner = model::GpuTransformer::create(
        file, *device_,
        {.stream = compute(),
         .take_error = [this](const char* name, int error) { gpu_->take_error_of(name, error); },
         .tile_rows = 40,
         .logit_rows_max = 3});
    if (runner) {
      runner_ = *std::move(runner);
    } else {
      error_ = runner.error();
    }
  }

  const std::string store_;
  const bool host_;
  std::optional<Error> error_;
  std::optional<emulator::SimulatedCuda> cuda_;  // its end ends the process where it was misused
  model::ToyVocabulary vocabulary_{"gpt2", "gpt-2"};
  std::unique_ptr<model::Tokenizer> tokenizer_;
  kernels::CudaDevice* gpu_ = nullptr;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<model::Runner> runner_;
  std::unique_ptr<Engine> engine_;
};

Request request_of(uint64_t conversation, uint32_t tokens, bool greedy) {
  Request request;
  for (uint32_t i = 0; i < tokens; ++i) {
    request.prompt.push_back(static_cast<model::TokenId>((conversation * 31 + i * i * 7 + i) % 96));
  }
  request.stop.max_tokens = 3;
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
  for (const uint32_t tokens : {52u, 68u}) {
    std::vector<std::shared_ptr<AnswerSink>> sinks;
    for (uint64_t conversation = 0; conversation < 3; ++conversation) {
      sinks.push_back(served.submit(request_of(conversation, tokens, conversation % 2 == 0)));
    }
    for (const auto& sink : sinks) answers.push_back(sink->wait());
  }
  return answers;
}

bool has_twin() {
  return kernels::available_cpu_levels().back() != kernels::CpuLevel::kBaseline;  // it needs FMA
}

void expect_same(const std::vector<Answer>& answers, const std::vector<Answer>& expected) {
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(answers[i].finish, FinishReason::kLength) << answers[i].error;
    EXPECT_EQ(answers[i].tokens().size(), 3u);
    EXPECT_TRUE(answers[i].choices == expected[i].choices);
  }
}

TEST(GpuEngine, answers_are_those_over_the_cpu_whatever_came_from_the_tiers) {
  if (!has_twin()) GTEST_SKIP() << "the twin needs FMA";
  struct Case {
    const char* model;
    bool host;  // with a host tier, from which all comes then
    uint32_t late_us;
  };
  uint32_t from_host = 0, from_nvme = 0;
  for (const Case& one : {Case{"qwen2_q8_0", true, 0}, Case{"gemma3_soft_caps", false, 300}}) {
    SCOPED_TRACE(one.model);
    const model::TinyModel model(one.model);
    const TemporaryFolder cpu_store, gpu_store;
    std::vector<Answer> expected;
    {
      Served cpu(model.file, Kind::kCpu, cpu_store.path());
      ASSERT_FALSE(cpu.start());
      expected = talk(cpu);
    }
    Served gpu(model.file, Kind::kGpu, gpu_store.path(),
               {.cuda = {.threads = true, .late_us = one.late_us}, .host = one.host});
    ASSERT_FALSE(gpu.start());
    const std::vector<Answer> answers = talk(gpu);
    expect_same(answers, expected);
    for (const Answer& answer : answers) {
      from_host += answer.usage.host_tokens;
      from_nvme += answer.usage.nvme_tokens;
    }
  }
  EXPECT_GT(from_host, 0u);
  EXPECT_GT(from_nvme, 0u);
}

// Whichever stream breaks the GPU: its requests end with the reason, and what lies on NVMe is good.
TEST(GpuEngine, a_gpu_that_breaks_ends_requests_and_leaves_the_store_good) {
  if (!has_twin()) GTEST_SKIP() << "the twin needs FMA";
  const model::TinyModel model("qwen2_q8_0");
  std::vector<Answer> expected;
  {
    const TemporaryFolder store;
    Served cpu(model.file, Kind::kCpu, store.path());
    ASSERT_FALSE(cpu.start());
    for (const uint64_t conversation : {1u, 2u}) {
      expected.push_back(cpu.submit(request_of(conversation, 40, true))->wait());
    }
  }
  for (const bool host : {false, true}) {
    for (const bool in_a_copy : {false, true}) {
      SCOPED_TRACE(testing::Message() << "host tier " << host << ", in a copy " << in_a_copy);
      const TemporaryFolder store;
      {
        Served served(model.file, Kind::kGpu, store.path(), {.host = host});
        ASSERT_FALSE(served.start());
        const Answer good = served.submit(request_of(1, 40, true))->wait();
        EXPECT_TRUE(good.choices == expected[0].choices);
        const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (served.engine().stats().tiers.nvme.writes < 2) {
          ASSERT_LT(std::chrono::steady_clock::now(), patience);
          served.submit(request_of(1, 1, true))->wait();  // its end publishes the figures
        }
        served.cuda().fail_stream(in_a_copy ? served.copy_out() : served.compute(),
                                  cudaErrorIllegalAddress, in_a_copy ? 0 : 30);
        const Answer second = served.submit(request_of(2, 40, true))->wait();
        if (!in_a_copy) EXPECT_EQ(second.finish, FinishReason::kError);
        Answer failed;
        do {  // a copy fails some time after the answer that it was for
          ASSERT_LT(std::chrono::steady_clock::now(), patience);
          failed = served.submit(request_of(3, 20, true))->wait();
        } while (failed.finish != FinishReason::kError);
        EXPECT_NE(failed.error.find("GPU 0 has failed"), std::string::npos) << failed.error;
        EXPECT_NE(failed.error.find("cudaErrorIllegalAddress"), std::string::npos) << failed.error;
      }
      Served after(model.file, Kind::kGpu, store.path(), {.host = host});
      ASSERT_FALSE(after.start());
      uint32_t from_nvme = 0;
      for (const uint64_t conversation : {1u, 2u}) {
        const Answer answer = after.submit(request_of(conversation, 40, true))->wait();
        EXPECT_TRUE(answer.choices == expected[conversation - 1].choices);
        from_nvme += answer.usage.nvme_tokens;
      }
      EXPECT_GE(from_nvme, 2 * 16u);
    }
  }
}

TEST(GpuEngine, a_gpu_without_enough_memory_says_so_at_the_start) {
  const model::TinyModel model("qwen2_q8_0");
  const TemporaryFolder store;
  std::vector<std::string> messages;
  for (size_t bytes = 1 << 10; messages.empty() || messages.back() != ""; bytes *= 2) {
    Served served(model.file, Kind::kGpu, store.path(),
                  {.cuda = {.threads = true, .device_bytes = bytes}});
    const std::optional<Error> error = served.start();
    messages.push_back(error ? error->message : "");
    if (error) EXPECT_EQ(error->code, ErrorCode::kResourceExhausted) << error->message;
  }
  EXPECT_NE(messages.front().find("the weights take"), std::string::npos) << messages.front();
  ASSERT_GE(messages.size(), 2u);
}

TEST(GpuEngine, an_operator_that_is_refused_ends_the_gpu) {
  const model::TinyModel model("qwen2_q8_0");
  const TemporaryFolder store;
  Served served(model.file, Kind::kGpu, store.path());
  served.cuda().fail_call("launch", cudaErrorLaunchFailure, 100);  // in the second step
  ASSERT_FALSE(served.start());
  const Answer failed = served.submit(request_of(1, 40, true))->wait();
  EXPECT_EQ(failed.finish, FinishReason::kError);
  EXPECT_NE(failed.error.find("GPU 0 has failed"), std::string::npos) << failed.error;
  const Answer next = served.submit(request_of(1, 40, true))->wait();
  EXPECT_EQ(next.finish, FinishReason::kError);
  EXPECT_EQ(next.error, failed.error);
}

}  // namespace
}  // namespace spillway::scheduler
