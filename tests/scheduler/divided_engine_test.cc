// The engine over CPU devices that share a model: what a rank keeps of each page goes down to host
// memory and NVMe and comes back with the same bits.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/cpu_level.h"
#include "model/divided_transformer.h"
#include "runtime/prng.h"
#include "scheduler/engine.h"
#include "tests/model/tiny_models.h"
#include "tests/model/toy_vocabulary.h"
#include "tests/scheduler/answer_sink.h"
#include "tests/temporary_folder.h"

namespace spillway::scheduler {
namespace {

constexpr uint32_t kPromptTokens = 200;
constexpr uint32_t kFullPages = 12 * 16;  // of the prompt, but for its last token's

// As many tokens as the model has: a byte each, and one of two.
std::unique_ptr<model::Tokenizer> tokenizer_of(uint32_t vocabulary) {
  model::ToyVocabulary toy("gpt2");
  for (uint32_t i = 0; i + 1 < vocabulary; ++i) toy.add_bytes(std::string(1, static_cast<char>(i)));
  toy.add_merge("0", "1");
  return toy.tokenizer();
}

// An engine over `division.ranks()` CPU devices of one thread.
class DividedEngine {
 public:
  DividedEngine(const model::GgufFile& file, const model::Division& division,
                EngineOptions options) {
    std::vector<kernels::Device*> pointers;
    for (uint32_t r = 0; r < division.ranks(); ++r) {
      devices_.push_back(kernels::make_cpu_device({.threads = 1, .level = "test", .pin = false}));
      pointers.push_back(devices_.back().get());
    }
    runner_ = model::DividedTransformer::create(
                  file, pointers, division,
                  {.level = kernels::available_cpu_levels().back(), .tile_rows = 32})
                  .value();
    tokenizer_ = tokenizer_of(runner_->shape().vocabulary);
    options.load_all = true;  // what a tier holds is not computed
    options.kv_verify_all = true;
    engine_ = Engine::start(options, *runner_, runner_->device(), *tokenizer_).value();
  }

  Answer ask(uint64_t seed) {
    Request request;
    for (uint32_t i = 0; i < kPromptTokens; ++i) {
      const auto token = random_at(seed, 7, i) % runner_->shape().vocabulary;
      request.prompt.push_back(static_cast<model::TokenId>(token));
    }
    request.stop.max_tokens = 6;
    request.stop.ignore_eos = true;
    request.logprobs = 5;
    request.sampling.temperature = 0;
    auto sink = std::make_shared<AnswerSink>();
    EXPECT_TRUE(engine_->submit(std::move(request), sink));
    return sink->wait();
  }
  EngineStats stats() const { return engine_->stats(); }
  // Waits until all that is to come down has: at least the prompt's pages, and no more for a while.
  void settle() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    uint64_t before = 0;
    for (int still = 0; still < 200 && std::chrono::steady_clock::now() < end; ++still) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const EngineStats now = engine_->stats();
      const bool moves = now.tiers.nvme.pages != before || now.tiers.paths_waiting > 0;
      if (moves || before < kFullPages / 16) still = 0;
      before = now.tiers.nvme.pages;
    }
    EXPECT_GE(before, kFullPages / 16);
  }

 private:
  std::vector<std::unique_ptr<kernels::Device>> devices_;
  std::unique_ptr<model::DividedTransformer> runner_;
  std::unique_ptr<model::Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
};

// Uneven heads, a KV head on every rank with pages that are padded, and stages.
struct Subject {
  const char* model;
  model::Division division;
};
constexpr Subject kSubjects[] = {{"llama_odd_sizes", {2, 1}},
                                 {"gemma3_soft_caps", {2, 1}},
                                 {"gemma3_soft_caps", {2, 2}},
                                 {"llama_q4_1", {1, 2}}};

EngineOptions with_nvme(const std::string& folder) {
  EngineOptions options;
  options.kv_device_bytes = uint64_t{16} << 20;
  options.kv_nvme_dir = folder;
  options.kv_nvme_bytes = uint64_t{64} << 20;
  return options;
}

TEST(DividedEngine, pages_come_back_from_nvme_after_a_restart_with_the_same_bits) {
  for (const Subject& subject : kSubjects) {
    const model::TinyModel model(subject.model);
    const TemporaryFolder folder;
    Answer cold;
    {
      DividedEngine engine(model.file, subject.division, with_nvme(folder.path()));
      cold = engine.ask(1);
      EXPECT_EQ(cold.usage.cached_tokens, 0u);
      ASSERT_EQ(cold.tokens().size(), 6u);
      engine.settle();
    }
    DividedEngine engine(model.file, subject.division, with_nvme(folder.path()));
    const Answer warm = engine.ask(1);
    EXPECT_EQ(warm.usage.nvme_tokens, kFullPages) << subject.model;
    EXPECT_TRUE(warm.choices == cold.choices) << subject.model;
  }
}

// Partial sums of another number of ranks have other bits: nothing is taken over.
TEST(DividedEngine, another_division_finds_nothing_in_the_store) {
  const model::TinyModel model("llama_odd_sizes");
  const TemporaryFolder folder;
  {
    DividedEngine engine(model.file, {2, 1}, with_nvme(folder.path()));
    engine.ask(1);
    engine.settle();
  }
  DividedEngine engine(model.file, {1, 2}, with_nvme(folder.path()));
  EXPECT_EQ(engine.ask(1).usage.matched_tokens, 0u);
  EXPECT_GT(engine.stats().tiers.other_pages, 0u);
}

TEST(DividedEngine, pages_come_back_from_host_memory_with_the_same_bits) {
  for (const Subject& subject : kSubjects) {
    const model::TinyModel model(subject.model);
    const TemporaryFolder folder;
    EngineOptions options;
    options.context_tokens_max = 256;
    options.sequences_max = 1;
    options.step_tokens_max = 64;
    options.kv_device_bytes = uint64_t{2} << 20;
    options.kv_host_bytes = uint64_t{64} << 20;
    DividedEngine engine(model.file, subject.division, options);
    const Answer cold = engine.ask(1);
    // Others take its place on the device.
    for (uint64_t seed = 2; seed < 40; ++seed) engine.ask(seed);
    const Answer warm = engine.ask(1);
    EXPECT_GT(warm.usage.host_tokens, 0u) << subject.model;
    EXPECT_TRUE(warm.choices == cold.choices) << subject.model;
  }
}

}  // namespace
}  // namespace spillway::scheduler
