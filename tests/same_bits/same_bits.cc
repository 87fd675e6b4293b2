// Runs the same prompts through the real engine and a real model in many ways, and compares the
// tokens and every bit of their log-probabilities.
//
//   same_bits MODEL.gguf [--full] [--prompts N] [--longest TOKENS]
//
// Without --full the ways are a pairwise covering choice. Ways of one thread run two at a time, so
// that both take two cores. Exit 1 if anything differs.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/cpu_level.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "model/transformer.h"
#include "runtime/prng.h"
#include "scheduler/engine.h"
#include "tests/same_bits/settings.h"
#include "tests/scheduler/answer_sink.h"

namespace spillway::same_bits {
namespace {

constexpr uint32_t kOutputTokens = 8;

using scheduler::Answer;
using scheduler::AnswerSink;

using Prompt = std::vector<model::TokenId>;

// Lengths from 1 to `longest`, more short ones than long ones; pages' and windows' edges besides.
std::vector<Prompt> make_prompts(uint32_t count, uint32_t longest, uint32_t vocabulary) {
  std::vector<Prompt> prompts;
  const std::vector<uint32_t> edges = {1, 15, 16, 17, 32, 511, 512, 513, 529};
  for (uint32_t i = 0; i < count; ++i) {
    const double share = std::pow(static_cast<double>(i) / std::max(1u, count - 1), 2.0);
    uint32_t length = static_cast<uint32_t>(std::lround(std::pow(longest, share)));
    if (i % 3 == 0 && i / 3 < edges.size()) length = std::min(edges[i / 3], longest);
    Prompt prompt;
    for (uint32_t at = 0; at < length; ++at) {
      prompt.push_back(static_cast<model::TokenId>(random_at(77, i, at) % vocabulary));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// An engine over the model, as the setting says.
class Bench {
 public:
  Bench(const model::GgufFile& file, const model::Tokenizer& tokenizer, const Setting& setting)
      : setting_(setting),
        device_(kernels::make_cpu_device({.threads = setting.threads, .level = "test"})) {
    model::TransformerOptions options;
    options.level = kernels::cpu_level_from_environment().value();
    options.threads = setting.threads;
    runner_ = model::Transformer::create(file, *device_, options).value();
    scheduler::EngineOptions engine_options;
    engine_options.kv_device_bytes = uint64_t{1} << 30;
    engine_options.context_tokens_max = 4096;
    engine_options.step_tokens_max = setting.chunk;
    engine_options.preempt_every_steps = setting.preempted ? 5 : 0;
    engine_ = scheduler::Engine::start(engine_options, *runner_, *device_, tokenizer).value();
  }

  // One answer per prompt.
  std::vector<Answer> run(const std::vector<Prompt>& prompts, bool seeded) {
    std::vector<std::shared_ptr<AnswerSink>> sinks;
    for (size_t i = 0; i < prompts.size(); ++i) {
      warm_up(prompts[i], i);
      sinks.push_back(submit(prompts[i], kOutputTokens, seeded));
      if (!setting_.crowd) sinks.back()->wait();
    }
    std::vector<Answer> answers;
    for (const auto& sink : sinks) answers.push_back(sink->wait());
    return answers;
  }

 private:
  // Puts a part of the prompt, or all of it, into the cache.
  void warm_up(const Prompt& prompt, size_t index) {
    if (setting_.cached == Cached::kCold) return;
    Prompt prefix = prompt;
    if (setting_.cached == Cached::kPart) {
      prefix.resize(1 + random_at(78, index, 0) % prompt.size());
    }
    submit(prefix, 0, false)->wait();
  }

  std::shared_ptr<AnswerSink> submit(const Prompt& prompt, uint32_t max_tokens, bool seeded) {
    scheduler::Request request;
    request.prompt = prompt;
    request.stop.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    request.logprobs = 5;
    request.sampling.temperature = seeded ? 1.0f : 0.0f;
    request.sampling.seed = 4711;
    auto sink = std::make_shared<AnswerSink>();
    static_cast<void>(engine_->submit(std::move(request), sink).value());
    return sink;
  }

  const Setting setting_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<model::Runner> runner_;
  std::unique_ptr<scheduler::Engine> engine_;
};

// What all settings must give, and what they gave.
class Comparison {
 public:
  // The greedy answers are computed without a cache; the seeded ones then start from the prompts'
  // pages. If that were not the same, settings that are cold would differ.
  Comparison(const model::GgufFile& file, const model::Tokenizer& tokenizer,
             std::vector<Prompt> prompts)
      : file_(file), tokenizer_(tokenizer), prompts_(std::move(prompts)) {
    Bench bench(file_, tokenizer_, {.chunk = 2048, .crowd = true});
    greedy_ = bench.run(prompts_, false);
    seeded_ = bench.run(prompts_, true);
  }

  // Each is run by the next of `workers` threads that is free.
  void run(const std::vector<Setting>& settings, uint32_t workers) {
    std::atomic<size_t> next{0};
    std::vector<std::jthread> threads;
    for (uint32_t i = 0; i < workers; ++i) {
      threads.emplace_back([&] {
        for (size_t at = next++; at < settings.size(); at = next++) run_one(settings[at]);
      });
    }
  }

  uint32_t different() const { return different_; }
  uint64_t cached() const { return cached_; }
  uint64_t preemptions() const { return preemptions_; }

 private:
  void run_one(const Setting& setting) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<Answer> got = Bench(file_, tokenizer_, setting).run(prompts_, setting.seeded);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    const std::lock_guard lock(mutex_);
    std::printf("%-72s %5.1f s\n", setting.name().c_str(), time.count());
    const std::vector<Answer>& expected = setting.seeded ? seeded_ : greedy_;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      cached_ += got[i].usage.cached_tokens;
      preemptions_ += got[i].usage.preemptions;
      if (expected[i].choices == got[i].choices) continue;
      ++different_;
      std::printf("  prompt %zu (%zu tokens, %u cached) differs\n", i, prompts_[i].size(),
                  got[i].usage.cached_tokens);
    }
    std::fflush(stdout);
  }

  const model::GgufFile& file_;
  const model::Tokenizer& tokenizer_;
  const std::vector<Prompt> prompts_;
  std::vector<Answer> greedy_, seeded_;
  std::mutex mutex_;  // over what follows
  uint32_t different_ = 0;
  uint64_t cached_ = 0, preemptions_ = 0;
};

int run(const std::string& path, bool full, uint32_t count, uint32_t longest) {
  const auto file = model::GgufFile::open(path);
  if (!file) {
    std::fprintf(stderr, "error: %s\n(tools/setup --test fetches the models)\n",
                 file.error().message.c_str());
    return 1;
  }
  const auto tokenizer = model::Tokenizer::create(*file).value();
  Comparison comparison(*file, *tokenizer, make_prompts(count, longest, tokenizer->vocabulary()));
  std::vector<Setting> settings = full ? all_settings() : pairwise_settings();
  const auto one_thread = std::stable_partition(
      settings.begin(), settings.end(), [](const Setting& setting) { return setting.threads > 1; });
  comparison.run({settings.begin(), one_thread}, 1);
  comparison.run({one_thread, settings.end()}, 2);
  std::printf("%u prompts in %zu ways, %llu cached tokens, %llu preemptions: %u answers differ\n",
              count, settings.size(), static_cast<unsigned long long>(comparison.cached()),
              static_cast<unsigned long long>(comparison.preemptions()), comparison.different());
  // A run that used neither cache nor preemption has shown nothing.
  const bool shown = comparison.cached() > 0 && comparison.preemptions() > 0;
  return comparison.different() == 0 && shown ? 0 : 1;
}

}  // namespace
}  // namespace spillway::same_bits

int main(int argc, char** argv) {
  std::string path;
  bool full = false;
  uint32_t count = 50, longest = 3000;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--full") {
      full = true;
    } else if (argument == "--prompts" && i + 1 < argc) {
      count = static_cast<uint32_t>(std::stoul(argv[++i]));
    } else if (argument == "--longest" && i + 1 < argc) {
      longest = static_cast<uint32_t>(std::stoul(argv[++i]));
    } else {
      path = argument;
    }
  }
  if (path.empty() || count == 0 || longest == 0) {
    std::fprintf(stderr, "usage: same_bits MODEL.gguf [--full] [--prompts N] [--longest TOKENS]\n");
    return 2;
  }
  return spillway::same_bits::run(path, full, count, longest);
}
