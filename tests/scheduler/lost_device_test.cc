// A device that ends while the engine runs, alone or as one rank of several: another takes its
// place, what ran goes on, and every answer has the bits of an engine that never lost one, whether
// its prefix comes from host memory, from NVMe, or is computed again.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu_level.h"
#include "model/divided_transformer.h"
#include "model/renewable_runner.h"
#include "model/transformer.h"
#include "runtime/prng.h"
#include "scheduler/engine.h"
#include "tests/kernels/mortal_device.h"
#include "tests/model/tiny_models.h"
#include "tests/model/toy_vocabulary.h"
#include "tests/scheduler/answer_sink.h"
#include "tests/temporary_folder.h"

namespace spillway::scheduler {
namespace {

using kernels::MortalStream;

constexpr uint32_t kPromptTokens = 100;
constexpr uint32_t kPromptPages = kPromptTokens / 16;

struct Subject {
  const char* model;
  model::Division division;
};
// Uneven heads, KV heads on every rank, stages; and one device that is the whole.
constexpr Subject kSubjects[] = {{"llama_odd_sizes", {2, 1}},
                                 {"gemma3_soft_caps", {2, 2}},
                                 {"llama_q4_1", {1, 2}},
                                 {"qwen2_q8_0", {1, 1}}};

// As many tokens as the model has: a byte each, and one of two.
std::unique_ptr<model::Tokenizer> tokenizer_of(uint32_t vocabulary) {
  model::ToyVocabulary toy("gpt2");
  for (uint32_t i = 0; i + 1 < vocabulary; ++i) toy.add_bytes(std::string(1, static_cast<char>(i)));
  toy.add_merge("0", "1");
  return toy.tokenizer();
}

enum class Tier { kHost, kNvme };

// An engine over devices of one thread each that may end. Its pool holds a few prompts.
class MortalEngine {
 public:
  MortalEngine(const Subject& subject, Tier tier) : subject_(subject), model_(subject.model) {
    devices_.resize(subject.division.ranks());
    fates_.resize(devices_.size());
    runner_ = subject.division.ranks() == 1 ? make_whole() : make_divided();
    tokenizer_ = tokenizer_of(runner_->shape().vocabulary);
    EngineOptions options;
    options.kv_device_bytes = uint64_t{8} << 20;
    options.context_tokens_max = 256;
    options.step_tokens_max = 64;
    options.load_all = true;  // what a tier holds is not computed
    options.kv_nvme_scrub = std::chrono::nanoseconds(0);
    if (tier == Tier::kHost) {
      options.kv_host_bytes = uint64_t{32} << 20;
    } else {
      options.kv_nvme_dir = folder_.path();
      options.kv_nvme_bytes = uint64_t{32} << 20;
    }
    engine_ = Engine::start(options, *runner_, *device_, *tokenizer_).value();
  }

  Request request_of(uint64_t seed) const {
    Request request;
    for (uint32_t i = 0; i < kPromptTokens; ++i) {
      const auto token = random_at(seed, 7, i) % runner_->shape().vocabulary;
      request.prompt.push_back(static_cast<model::TokenId>(token));
    }
    request.stop.max_tokens = 5;
    request.stop.ignore_eos = true;
    request.logprobs = 3;
    request.sampling.seed = seed;
    request.sampling.temperature = seed % 2 == 0 ? 0 : 0.8F;
    request.choices = seed % 3 == 0 ? 2 : 1;
    return request;
  }
  std::shared_ptr<AnswerSink> submit(uint64_t seed) {
    auto sink = std::make_shared<AnswerSink>();
    EXPECT_TRUE(engine_->submit(request_of(seed), sink));
    return sink;
  }
  Answer ask(uint64_t seed) { return submit(seed)->wait(); }
  std::vector<Answer> ask_together(const std::vector<uint64_t>& seeds) {
    std::vector<std::shared_ptr<AnswerSink>> sinks;
    for (const uint64_t seed : seeds) sinks.push_back(submit(seed));
    std::vector<Answer> answers;
    for (const auto& sink : sinks) answers.push_back(sink->wait());
    return answers;
  }
  EngineStats stats() const { return engine_->stats(); }
  // REQUIRES: the engine is idle, or the device is not to be replaced just now.
  kernels::Mortality& fate(uint32_t rank) { return *fates_[rank]; }
  // Waits until `done` of the engine's figures.
  void until(const std::function<bool(const EngineStats&)>& done) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!done(stats()) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_LT(std::chrono::steady_clock::now(), end) << subject_.model;
  }
  // Until `pages` at least lie below the device, and no more come for a while.
  void until_kept(uint64_t pages) const {
    uint64_t before = 0;
    int still = 0;
    until([&](const EngineStats& s) {
      const uint64_t kept = s.tiers.host.pages + s.tiers.nvme.pages;
      const bool moves = std::exchange(before, kept) != kept || s.tiers.paths_waiting > 0;
      still = moves || kept < pages ? 0 : still + 1;
      return still > 30;
    });
  }
  // Nothing of any request or transfer is left in the pools.
  void expect_nothing_leaked() const {
    until([](const EngineStats& s) {
      for (const PoolStats& pool : s.pools) {
        if (pool.writable + pool.filling + pool.orphaned + pool.pinned > 0) return false;
        if (pool.free + pool.sealed != pool.capacity) return false;
      }
      return s.running + s.waiting == 0;
    });
  }

  // Called with the fate of each device that is made; and whether any is to be had.
  std::function<void(kernels::Mortality&)> on_make = [](kernels::Mortality& /*fate*/) {};
  std::atomic<bool> spares = true;

 private:
  Result<std::unique_ptr<kernels::Device>> make_device(uint32_t rank) {
    if (!spares) return Error{ErrorCode::kUnavailable, "no spare part"};
    fates_[rank] = std::make_shared<kernels::Mortality>();
    on_make(*fates_[rank]);
    return std::unique_ptr<kernels::Device>(std::make_unique<kernels::MortalDevice>(
        kernels::CpuDeviceOptions{.threads = 1, .level = "test", .pin = false}, fates_[rank]));
  }
  model::TransformerOptions transformer_options() const {
    return {.level = kernels::available_cpu_levels().back(), .tile_rows = 32};
  }
  std::unique_ptr<model::Runner> make_whole() {
    auto made = model::RenewableRunner::create(
        {.device = [this] { return make_device(0); },
         .runner = [this](kernels::Device& device) -> Result<std::unique_ptr<model::Runner>> {
           auto whole = model::Transformer::create(model_.file, device, transformer_options());
           if (!whole) return whole.error();
           return std::unique_ptr<model::Runner>(*std::move(whole));
         }});
    device_ = &(*made)->device();
    return *std::move(made);
  }
  std::unique_ptr<model::Runner> make_divided() {
    std::vector<kernels::Device*> pointers;
    for (uint32_t r = 0; r < devices_.size(); ++r) {
      devices_[r] = make_device(r).value();
      pointers.push_back(devices_[r].get());
    }
    auto made = model::DividedTransformer::create(model_.file, pointers, subject_.division,
                                                  transformer_options())
                    .value();
    made->set_spare({.replace_device = [this](uint32_t rank) -> Result<kernels::Device*> {
                       devices_[rank].reset();
                       auto fresh = make_device(rank);
                       if (!fresh) return fresh.error();
                       devices_[rank] = *std::move(fresh);
                       return devices_[rank].get();
                     },
                     .open_file =
                         [name = std::string(subject_.model)] {
                           return model::GgufFile::open("tests/data/tiny/" + name + ".gguf");
                         }});
    device_ = &made->device();
    return made;
  }

  const Subject subject_;
  const model::TinyModel model_;
  const TemporaryFolder folder_;
  std::vector<std::unique_ptr<kernels::Device>> devices_;   // (rank)
  std::vector<std::shared_ptr<kernels::Mortality>> fates_;  // (rank)
  std::unique_ptr<model::Runner> runner_;
  kernels::Device* device_ = nullptr;
  std::unique_ptr<model::Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
};

// Of an engine whose devices live.
std::vector<Answer> expected_answers(const Subject& subject, const std::vector<uint64_t>& seeds) {
  MortalEngine engine(subject, Tier::kHost);
  std::vector<Answer> answers;
  for (const uint64_t seed : seeds) answers.push_back(engine.ask(seed));
  return answers;
}

void expect_same(const Answer& answer, const Answer& expected) {
  EXPECT_EQ(answer.finish, FinishReason::kLength) << answer.error;
  EXPECT_TRUE(answer.choices == expected.choices);
}

const std::vector<uint64_t> kSeeds = {1, 2, 3};

// Each rank in its turn, in a prompt's first step and while tokens are drawn.
TEST(LostDevice, what_ran_in_a_step_goes_on_with_the_same_bits) {
  for (const Subject& subject : kSubjects) {
    SCOPED_TRACE(subject.model);
    const std::vector<Answer> expected = expected_answers(subject, kSeeds);
    MortalEngine engine(subject, Tier::kHost);
    engine.ask_together(kSeeds);
    const uint64_t before = engine.fate(0).operations(MortalStream::kCompute);
    engine.ask_together(kSeeds);
    const uint64_t launches = engine.fate(0).operations(MortalStream::kCompute) - before;
    uint64_t losses = 0;
    for (uint32_t rank = 0; rank < subject.division.ranks(); ++rank) {
      for (const uint64_t operations : {uint64_t{1}, launches / 4}) {
        SCOPED_TRACE(rank);
        // Others' pages, which the loss takes as well.
        engine.ask(10 + losses);
        engine.fate(rank).end_at(MortalStream::kCompute, operations);
        const std::vector<Answer> answers = engine.ask_together(kSeeds);
        for (size_t i = 0; i < kSeeds.size(); ++i) expect_same(answers[i], expected[i]);
        EXPECT_EQ(engine.stats().devices_lost, ++losses);
        EXPECT_EQ(engine.stats().devices_rebuilt, losses);
        EXPECT_GE(engine.stats().replayed, losses);
        engine.expect_nothing_leaked();
      }
    }
  }
}

// What lies in host memory and on NVMe outlives the device, and comes back from there.
TEST(LostDevice, prefixes_come_from_the_tiers_when_it_ended_while_idle) {
  for (const Subject& subject : kSubjects) {
    SCOPED_TRACE(subject.model);
    const std::vector<Answer> expected = expected_answers(subject, kSeeds);
    for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
      MortalEngine engine(subject, tier);
      for (size_t i = 0; i < kSeeds.size(); ++i) expect_same(engine.ask(kSeeds[i]), expected[i]);
      engine.until_kept(kSeeds.size() * kPromptPages);
      const uint32_t rank = subject.division.ranks() - 1;
      engine.fate(rank).end_now();
      if (subject.division.ranks() > 2) engine.fate(0).end_now();  // two at once
      // The first finds that it has ended; its pages of before are gone.
      expect_same(engine.ask(kSeeds[0]), expected[0]);
      EXPECT_EQ(engine.stats().devices_lost, 1u);
      for (size_t i = 1; i < kSeeds.size(); ++i) {
        const Answer warm = engine.ask(kSeeds[i]);
        expect_same(warm, expected[i]);
        EXPECT_GE(warm.usage.host_tokens + warm.usage.nvme_tokens, (kPromptPages - 1) * 16);
      }
      engine.expect_nothing_leaked();
    }
  }
}

// Bytes that the device never wrote are taken for no page, neither above nor below.
TEST(LostDevice, a_copy_that_was_cut_off_is_no_page) {
  for (const Subject& subject : kSubjects) {
    SCOPED_TRACE(subject.model);
    const std::vector<Answer> expected = expected_answers(subject, kSeeds);
    const uint32_t rank = subject.division.ranks() - 1;
    for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
      MortalEngine engine(subject, tier);
      // On the way down of the second's pages.
      expect_same(engine.ask(kSeeds[0]), expected[0]);
      engine.until_kept(kPromptPages);
      engine.fate(rank).end_at(MortalStream::kCopyOut, 2);
      expect_same(engine.ask(kSeeds[1]), expected[1]);
      engine.until([](const EngineStats& s) { return s.devices_rebuilt == 1; });
      for (size_t i = 0; i < 2; ++i) expect_same(engine.ask(kSeeds[i]), expected[i]);
      // On the way up, from host memory: a loss while idle has taken what was on the device.
      engine.until_kept(2 * kPromptPages);
      engine.fate(0).end_now();
      expect_same(engine.ask(kSeeds[2]), expected[2]);
      engine.until([](const EngineStats& s) { return s.devices_rebuilt == 2; });
      uint64_t losses = 2;
      if (tier == Tier::kHost) {
        engine.fate(rank).end_at(MortalStream::kCopyIn, 2);
        losses = 3;
      }
      const std::vector<Answer> answers = engine.ask_together({kSeeds[0], kSeeds[1]});
      for (size_t i = 0; i < 2; ++i) expect_same(answers[i], expected[i]);
      EXPECT_EQ(engine.stats().devices_lost, losses);
      EXPECT_EQ(engine.stats().devices_rebuilt, losses);
      engine.expect_nothing_leaked();
    }
  }
}

// While there is none requests are told so at once, and the next one after a while tries again.
TEST(LostDevice, without_another_requests_end_with_an_error_until_there_is_one) {
  for (const Subject& subject : {kSubjects[0], kSubjects[3]}) {
    SCOPED_TRACE(subject.model);
    const std::vector<Answer> expected = expected_answers(subject, {1});
    MortalEngine engine(subject, Tier::kHost);
    engine.spares = false;
    engine.fate(0).end_at(MortalStream::kCompute, 2);
    for (int i = 0; i < 2; ++i) {
      const Answer none = engine.ask(1);
      EXPECT_EQ(none.finish, FinishReason::kError);
      EXPECT_NE(none.error.find("unplugged"), std::string::npos) << none.error;
      EXPECT_NE(none.error.find("no spare part"), std::string::npos) << none.error;
    }
    EXPECT_GE(engine.stats().rebuilds_failed, 1u);
    engine.spares = true;
    Answer answer;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      answer = engine.ask(1);
    } while (answer.finish == FinishReason::kError && std::chrono::steady_clock::now() < end);
    expect_same(answer, expected[0]);
    EXPECT_EQ(engine.stats().devices_rebuilt, 1u);
    engine.expect_nothing_leaked();
  }
}

// It may be the request that ends devices: it is not tried for ever, and others go on.
TEST(LostDevice, a_request_that_no_device_survives_ends_with_an_error) {
  const std::vector<Answer> expected = expected_answers(kSubjects[0], {2});
  MortalEngine engine(kSubjects[0], Tier::kHost);
  // The second such launch behind those with which a fresh device is tried out.
  const uint64_t tries = engine.fate(1).operations(MortalStream::kCompute);
  const auto soon = [tries](kernels::Mortality& fate) {
    fate.end_at(MortalStream::kCompute, tries + 1);
  };
  std::atomic<int> made = 0;
  engine.on_make = [&](kernels::Mortality& fate) {
    if (++made < 3) soon(fate);
  };
  engine.fate(1).end_at(MortalStream::kCompute, 1);
  const Answer failed = engine.ask(1);
  EXPECT_EQ(failed.finish, FinishReason::kError);
  EXPECT_NE(failed.error.find("each of 3 times"), std::string::npos) << failed.error;
  expect_same(engine.ask(2), expected[0]);
  EXPECT_EQ(engine.stats().devices_lost, 3u);
  EXPECT_EQ(engine.stats().devices_rebuilt, 3u);
  engine.expect_nothing_leaked();
}

}  // namespace
}  // namespace spillway::scheduler
