// Runs the same prompts through the real engine and a real model in many ways, and compares the
// tokens and every bit of their log-probabilities.
//
//   same_bits MODEL.gguf [--full] [--prompts N] [--longest TOKENS]
//
// Without --full the ways are a pairwise covering choice. Exit 1 if anything differs.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/cpu_level.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "model/transformer.h"
#include "runtime/prng.h"
#include "scheduler/engine.h"
#include "tests/same_bits/settings.h"

namespace spillway::same_bits {
namespace {

constexpr uint32_t kOutputTokens = 12;

struct Answer {
  std::vector<model::TokenId> tokens;
  std::vector<float> logprobs;  // drawn token, then the five most likely, for each token
  uint32_t cached_tokens = 0;
  uint32_t preemptions = 0;

  bool same_bits(const Answer& other) const {
    return tokens == other.tokens && logprobs.size() == other.logprobs.size() &&
           std::memcmp(logprobs.data(), other.logprobs.data(), logprobs.size() * sizeof(float)) ==
               0;
  }
};

class Sink final : public scheduler::OutputSink {
 public:
  void on_output(scheduler::Output output) override {
    const std::lock_guard lock(mutex_);
    for (const scheduler::OutputToken& token : output.tokens) {
      answer_.tokens.push_back(token.token);
      answer_.logprobs.push_back(token.logprob);
      for (const model::TokenLogprob& top : token.top) answer_.logprobs.push_back(top.logprob);
    }
    if (!output.done) return;
    answer_.cached_tokens = output.usage.cached_tokens;
    answer_.preemptions = output.usage.preemptions;
    done_ = true;
    changed_.notify_all();
  }
  Answer wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return answer_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Answer answer_;
  bool done_ = false;
};

using Prompt = std::vector<model::TokenId>;

// Lengths from 1 to `longest`, more short ones than long ones; pages' and windows' edges besides.
std::vector<Prompt> make_prompts(uint32_t count, uint32_t longest, uint32_t vocabulary) {
  std::vector<Prompt> prompts;
  const std::vector<uint32_t> edges = {1, 15, 16, 17, 32, 511, 512, 513, 529};
  for (uint32_t i = 0; i < count; ++i) {
    const double share = std::pow(static_cast<double>(i) / std::max(1u, count - 1), 1.6);
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

class Bench {
 public:
  Bench(const model::GgufFile& file, const model::Tokenizer& tokenizer)
      : file_(file), tokenizer_(tokenizer) {}

  // One answer per prompt.
  std::vector<Answer> run(const std::vector<Prompt>& prompts, const Setting& setting) {
    auto device = kernels::make_cpu_device({.threads = setting.threads, .level = "test"});
    model::TransformerOptions options;
    options.level = kernels::cpu_level_from_environment().value();
    options.threads = setting.threads;
    auto runner = model::Transformer::create(file_, *device, options).value();
    scheduler::EngineOptions engine_options;
    engine_options.kv_device_bytes = uint64_t{1} << 30;
    engine_options.context_tokens_max = 4096;
    engine_options.step_tokens_max = setting.chunk;
    engine_options.preempt_every_steps = setting.preempted ? 5 : 0;
    auto engine = scheduler::Engine::start(engine_options, *runner, *device, tokenizer_).value();
    std::vector<std::shared_ptr<Sink>> sinks;
    for (size_t i = 0; i < prompts.size(); ++i) {
      warm_up(*engine, prompts[i], i, setting.cached);
      sinks.push_back(submit(*engine, prompts[i], kOutputTokens, setting.seeded));
      if (!setting.crowd) sinks.back()->wait();
    }
    std::vector<Answer> answers;
    for (const auto& sink : sinks) answers.push_back(sink->wait());
    return answers;
  }

 private:
  // Puts a part of the prompt, or all of it, into the cache.
  static void warm_up(scheduler::Engine& engine, const Prompt& prompt, size_t index,
                      Cached cached) {
    if (cached == Cached::kCold) return;
    Prompt prefix = prompt;
    if (cached == Cached::kPart) prefix.resize(1 + random_at(78, index, 0) % prompt.size());
    submit(engine, prefix, 0, false)->wait();
  }

  static std::shared_ptr<Sink> submit(scheduler::Engine& engine, const Prompt& prompt,
                                      uint32_t max_tokens, bool seeded) {
    scheduler::Request request;
    request.prompt = prompt;
    request.stop.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    request.logprobs = 5;
    request.sampling.temperature = seeded ? 1.0f : 0.0f;
    request.sampling.seed = 4711;
    auto sink = std::make_shared<Sink>();
    static_cast<void>(engine.submit(std::move(request), sink).value());
    return sink;
  }

  const model::GgufFile& file_;
  const model::Tokenizer& tokenizer_;
};

// Prints what differs. Returns the number of answers that do.
uint32_t compare(const std::vector<Prompt>& prompts, const std::vector<Answer>& expected,
                 const std::vector<Answer>& got) {
  uint32_t different = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (expected[i].same_bits(got[i])) continue;
    ++different;
    std::printf("  prompt %zu (%zu tokens, %u cached) differs\n", i, prompts[i].size(),
                got[i].cached_tokens);
  }
  return different;
}

int run(const std::string& path, bool full, uint32_t count, uint32_t longest) {
  const auto file = model::GgufFile::open(path);
  if (!file) {
    std::fprintf(stderr, "error: %s\n(tools/setup --test fetches the models)\n",
                 file.error().message.c_str());
    return 1;
  }
  const auto tokenizer = model::Tokenizer::create(*file).value();
  const auto prompts = make_prompts(count, longest, tokenizer->vocabulary());
  Bench bench(*file, *tokenizer);
  const std::vector<Answer> greedy = bench.run(prompts, {.chunk = 2048});
  const std::vector<Answer> seeded = bench.run(prompts, {.chunk = 2048, .seeded = true});
  const std::vector<Setting> settings = full ? all_settings() : pairwise_settings();
  uint32_t different = 0;
  uint64_t cached = 0, preemptions = 0;
  for (const Setting& setting : settings) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<Answer> got = bench.run(prompts, setting);
    different += compare(prompts, setting.seeded ? seeded : greedy, got);
    for (const Answer& answer : got) {
      cached += answer.cached_tokens;
      preemptions += answer.preemptions;
    }
    std::printf("%-72s %5.1f s\n", setting.name().c_str(),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    std::fflush(stdout);
  }
  std::printf("%zu prompts in %zu ways, %llu cached tokens, %llu preemptions: %u answers differ\n",
              prompts.size(), settings.size(), static_cast<unsigned long long>(cached),
              static_cast<unsigned long long>(preemptions), different);
  // A run that used neither cache nor preemption has shown nothing.
  return different == 0 && cached > 0 && preemptions > 0 ? 0 : 1;
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
