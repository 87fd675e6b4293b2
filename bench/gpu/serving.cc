// A model of random weights, served by the engine on the GPU: tokens per second of streams that
// decode, and the time to the first token behind a long prefix that comes back from host memory or
// from NVMe, beside what a copy of its bytes alone and the computation alone take.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>

#include "bench/gpu/bench_run.h"
#include "bench/gpu/disk_read.h"
#include "bench/no_text.h"
#include "model/gguf.h"
#include "model/gpu_transformer.h"
#include "scheduler/engine.h"

namespace spillway::bench {
namespace {

using scheduler::Engine;
using scheduler::EngineOptions;
using scheduler::Request;
using scheduler::Usage;
using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// One request's times. The engine's thread fills it, one other awaits it.
class Timed final : public scheduler::OutputSink {
 public:
  void on_output(scheduler::Output output) override {
    if (!output.tokens.empty() && first_ < 0) first_ = seconds_since(start_);
    if (!output.error.empty()) error_ = std::move(output.error);
    if (!output.done) return;
    usage_ = output.usage;
    done_.set_value();
  }
  Result<> wait() {
    done_.get_future().wait();
    if (!error_.empty()) return Error{ErrorCode::kIo, error_};
    return Result<>();
  }
  double first_token_seconds() const { return first_; }
  const Usage& usage() const { return usage_; }

 private:
  const SteadyClock::time_point start_ = SteadyClock::now();
  double first_ = -1;
  std::string error_;
  Usage usage_;
  std::promise<void> done_;
};

// The model on the GPU, and its engines, one after another.
struct Served {
  std::unique_ptr<model::Runner> runner;
  std::unique_ptr<NoText> tokenizer;
  size_t page_bytes = 0;  // of 16 tokens, all groups together
  uint32_t page_tokens = 16;

  uint64_t bytes_of(uint64_t tokens) const { return (tokens / page_tokens + 1) * page_bytes; }
};

Result<Served> load(BenchRun& run) {
  const std::string path = run.folder() + "/gpu-bench-model.gguf";
  if (const auto written = write_model(path, run.sizes().model); !written) return written.error();
  Served served;
  const auto file = model::GgufFile::open(path);
  if (file) {
    kernels::CudaDevice& device = run.device();
    auto runner = model::GpuTransformer::create(
        *file, device,
        {.stream = device.native(device.compute()),
         .take_error = [&device](const char* name,
                                 int error) { device.take_error_of(name, error); },
         .graphs = &device.graphs()});
    if (!runner) return runner.error();
    served.runner = *std::move(runner);
  }
  std::filesystem::remove(path);
  if (!file) return file.error();
  served.tokenizer = std::make_unique<NoText>(served.runner->shape().vocabulary);
  for (const auto& group : served.runner->shape().groups) {
    served.page_bytes += group.page_bytes();
    served.page_tokens = group.page_tokens;
  }
  return served;
}

// Tokens that name a prompt: the same for the same number.
std::vector<model::TokenId> tokens_of(const Served& served, uint64_t prompt, uint32_t count) {
  std::vector<model::TokenId> out;
  for (uint64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<model::TokenId>(1 + (prompt * 7919 + i * i * 31 + i) %
                                                      (served.runner->shape().vocabulary - 1)));
  }
  return out;
}

Request request_of(std::vector<model::TokenId> prompt, uint32_t tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.stop.max_tokens = tokens;
  request.stop.ignore_eos = true;
  return request;
}

Result<std::shared_ptr<Timed>> ask(Engine& engine, Request request) {
  auto timed = std::make_shared<Timed>();
  if (auto id = engine.submit(std::move(request), timed); !id) return id.error();
  if (const auto done = timed->wait(); !done) return done.error();
  return timed;
}

// Streams that decode together, from one's first token to the last one's end.
Result<> measure_decode(BenchRun& run, Served& served, uint32_t streams) {
  constexpr uint32_t kPromptTokens = 32;
  const uint32_t tokens = run.sizes().served.decoded_tokens;
  EngineOptions options;
  options.kv_device_bytes = 2 * streams * served.bytes_of(kPromptTokens + tokens + 32);
  options.context_tokens_max = kPromptTokens + tokens;
  auto engine = Engine::start(options, *served.runner, run.device(), *served.tokenizer);
  if (!engine) return engine.error();
  std::vector<double> seconds;
  for (uint32_t round = 0; round < 4; ++round) {
    std::vector<std::shared_ptr<Timed>> all;
    for (uint32_t i = 0; i < streams; ++i) {
      auto timed = all.emplace_back(std::make_shared<Timed>());
      auto request = request_of(tokens_of(served, round * 1000 + i, kPromptTokens), tokens);
      if (auto id = (*engine)->submit(std::move(request), timed); !id) return id.error();
    }
    double longest = 0;
    for (const auto& timed : all) {
      if (const auto done = timed->wait(); !done) return done;
      longest = std::max(longest, timed->usage().decode_seconds);
    }
    if (round != 0) seconds.push_back(longest);  // the first warms up
  }
  run.recorder().add({.name = "decode",
                      .what = std::to_string(streams) + " streams",
                      .tokens = uint64_t{streams} * (tokens - 1)},
                     std::move(seconds));
  return Result<>();
}

enum class Below { kHost, kNvme };

// Times to the first token: of prompts whose prefix came from below, and of those whose prefix was
// on the device, so that the suffix alone was computed.
struct Restores {
  std::vector<double> restored, computed, cold;
};

// Two prefixes take turns in pools that hold one.
Result<Restores> restore(BenchRun& run, Served& served, Engine& engine, Below below) {
  const ServedSizes& sizes = run.sizes().served;
  Restores out;
  uint64_t suffix = 100;
  for (uint32_t round = 0; round < sizes.restores; ++round) {
    for (const bool again : {false, true}) {
      auto prompt = tokens_of(served, round % 2, sizes.prefix_tokens);
      const auto behind = tokens_of(served, suffix++, sizes.suffix_tokens);
      prompt.insert(prompt.end(), behind.begin(), behind.end());
      const auto timed = ask(engine, request_of(std::move(prompt), 1));
      if (!timed) return timed.error();
      const Usage& usage = (*timed)->usage();
      const uint32_t came = below == Below::kHost ? usage.host_tokens : usage.nvme_tokens;
      const double seconds = (*timed)->first_token_seconds();
      const uint32_t most =
          sizes.prefix_tokens - std::max(sizes.prefix_tokens / 10, 2 * served.page_tokens);
      if (usage.cached_tokens == 0) out.cold.push_back(seconds);
      if (came >= most) out.restored.push_back(seconds);
      if (again && came == 0 && usage.cached_tokens >= most) out.computed.push_back(seconds);
    }
  }
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What the prefix's bytes take: one copy from pinned memory, and before it one read where they are
// on disk, whichever is longer.
Result<double> copy_seconds(BenchRun& run, const Served& served, Below below) {
  const size_t bytes = served.bytes_of(run.sizes().served.prefix_tokens);
  const auto there = run.device().allocate(bytes);
  if (!there) return there.error();
  const auto here = run.device().allocate_host(bytes);
  if (!here) return here.error();
  auto& stream = run.device().copy_in();
  const auto copies = run.times(stream, [&] { stream.copy(there->data, here->data, bytes); });
  if (!copies) return copies.error();
  if (below == Below::kHost) return median(*copies);
  std::vector<double> reads;
  for (int i = 0; i < 3; ++i) {
    const auto read = disk_read_seconds(run.folder(), bytes);
    if (!read) return read.error();
    reads.push_back(*read);
  }
  return std::max(median(*copies), median(reads));
}

Result<> measure_restores(BenchRun& run, Served& served, Below below) {
  const ServedSizes& sizes = run.sizes().served;
  const uint32_t prompt = sizes.prefix_tokens + sizes.suffix_tokens;
  const std::string name = below == Below::kHost ? "restored_from_host" : "restored_from_nvme";
  const auto copy = copy_seconds(run, served, below);
  if (!copy) return copy.error();
  const std::string store = run.folder() + "/gpu-bench-store";
  EngineOptions options;
  options.kv_device_bytes = served.bytes_of(prompt + 16);  // so that nothing of the other is left
  options.context_tokens_max = prompt + 16;
  options.load_all = true;
  if (below == Below::kHost) options.kv_host_bytes = 6 * served.bytes_of(prompt);
  if (below == Below::kNvme) options.kv_nvme_dir = store;
  if (below == Below::kNvme) options.kv_nvme_bytes = sizes.nvme_bytes;
  Result<Restores> restores = Restores{};
  {
    auto engine = Engine::start(options, *served.runner, run.device(), *served.tokenizer);
    if (!engine) return engine.error();
    restores = restore(run, served, **engine, below);
  }
  std::filesystem::remove_all(store);
  if (!restores) return restores.error();
  if (restores->restored.empty() || restores->computed.empty()) {
    run.recorder().skip(name, "the prefix did not come back from there");
    return Result<>();
  }
  const std::string what = std::to_string(sizes.prefix_tokens) + " tokens";
  if (below == Below::kHost && !restores->cold.empty()) {
    run.recorder().add(
        {.name = "cold_prefill", .what = std::to_string(prompt) + " tokens", .tokens = prompt},
        restores->cold);
  }
  run.recorder().add({.name = name,
                      .what = what,
                      .copy_seconds = *copy,
                      .compute_seconds = median(restores->computed)},
                     restores->restored);
  return Result<>();
}

}  // namespace

Result<> measure_serving(BenchRun& run) {
  auto served = load(run);
  if (!served) return served.error();
  for (const uint32_t streams : run.sizes().served.streams) {
    if (const auto done = measure_decode(run, *served, streams); !done) return done;
  }
  for (const Below below : {Below::kHost, Below::kNvme}) {
    if (const auto done = measure_restores(run, *served, below); !done) return done;
  }
  return Result<>();
}

}  // namespace spillway::bench
