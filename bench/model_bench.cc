// Tokens per second of a GGUF model without an engine around it: prefill of 512 tokens, decode of
// one stream and of eight behind that prompt. Prints the achieved GB/s and GOP/s beside, to compare
// with what the machine can do (docs/BENCHMARKS.md).
//
// On a machine that does other work, compare the processor time per token, which is printed too.
//
//   model_bench MODEL.gguf [THREADS] [f32|f16|bf16] [REPEATS] [TILE_ROWS]
//   SPILLWAY_CPU forces a level
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/cpu_level.h"
#include "model/transformer.h"
#include "runtime/clock.h"
#include "runtime/engine_loop.h"
#include "runtime/eventfd_parker.h"

namespace spillway::model {
namespace {

constexpr uint32_t kPromptTokens = 512;
constexpr uint32_t kDecodeTokens = 64;
constexpr uint32_t kStreamsMax = 8;

struct Stream {
  std::vector<std::vector<kernels::PageId>> tables;
  std::vector<TokenId> tokens;
  TokenId drawn = 0;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

class Bench {
 public:
  Bench(Transformer& runner, kernels::Device& device)
      : runner_(runner), device_(device), event_(device.make_event()) {
    greedy_.temperature = 0;
    std::vector<std::byte*> bases;
    streams_.resize(kStreamsMax);
    for (const kernels::KvGroupLayout& group : runner.shape().groups) {
      const uint32_t pages = (kPromptTokens + kDecodeTokens) / group.page_tokens;
      memory_.push_back(device.allocate(group.page_bytes() * pages * kStreamsMax).value());
      bases.push_back(memory_.back().data);
      for (uint32_t s = 0; s < kStreamsMax; ++s) {
        auto& table = streams_[s].tables.emplace_back();
        for (uint32_t i = 0; i < pages; ++i) table.push_back(kernels::PageId{s * pages + i});
      }
    }
    runner.bind_pages(bases);
    for (uint32_t i = 0; i < kPromptTokens; ++i) {
      prompt_.push_back(
          static_cast<TokenId>((uint64_t{i} * 7919 + 17) % runner.shape().vocabulary));
    }
  }

  Task<> run(uint32_t repeats) {
    for (uint32_t r = 0; r < repeats; ++r) {
      const double start = processor_seconds();
      const double prefill = co_await prefill_all();
      const double prefilled = processor_seconds();
      const double one = co_await decode(1);
      const double decoded_one = processor_seconds();
      const double eight = co_await decode(8);
      const double decoded_eight = processor_seconds();
      report(prefill, one, eight);
      std::printf(
          "  processor time per token: prefill %.3f ms, decode 1 %.3f ms, decode 8 %.3f ms\n",
          (prefilled - start) * 1e3 / (kStreamsMax * kPromptTokens),
          (decoded_one - prefilled) * 1e3 / kDecodeTokens,
          (decoded_eight - decoded_one) * 1e3 / (8 * kDecodeTokens));
      std::fflush(stdout);
    }
  }

 private:
  Task<double> step(StepBatch& batch) {
    const double start = seconds_now();
    runner_.enqueue(batch, result_);
    device_.compute().record(*event_);
    co_await event_->wait();
    runner_.collect(batch, result_);
    co_return seconds_now() - start;
  }

  void add(StepBatch& batch, Stream& stream, std::span<const TokenId> tokens, uint32_t position) {
    SequenceStep& sequence = batch.sequences.emplace_back();
    sequence.tokens = tokens;
    sequence.position = position;
    for (const auto& table : stream.tables) sequence.tables.push_back(table);
    SampleRequest& sample = sequence.samples.emplace_back();
    sample.row = static_cast<uint32_t>(tokens.size()) - 1;
    sample.params = &greedy_;
  }

  // Tokens per second of the fastest stream's prompt.
  Task<double> prefill_all() {
    double fastest = 1e9;
    for (Stream& stream : streams_) {
      StepBatch batch;
      add(batch, stream, prompt_, 0);
      const double seconds = co_await step(batch);
      fastest = std::min(fastest, seconds);
      stream.drawn = result_.samples[0][0].token;
    }
    co_return kPromptTokens / fastest;
  }

  // Tokens per second of `count` streams together; the median step counts.
  Task<double> decode(uint32_t count) {
    std::vector<double> times;
    for (uint32_t i = 0; i < kDecodeTokens; ++i) {
      StepBatch batch;
      for (uint32_t s = 0; s < count; ++s) {
        add(batch, streams_[s], std::span(&streams_[s].drawn, 1), kPromptTokens + i);
      }
      const double seconds = co_await step(batch);
      times.push_back(seconds);
      for (uint32_t s = 0; s < count; ++s) streams_[s].drawn = result_.samples[s][0].token;
    }
    std::nth_element(times.begin(), times.begin() + kDecodeTokens / 2, times.end());
    co_return count / times[kDecodeTokens / 2];
  }

  void report(double prefill, double one, double eight) const {
    const double weight_bytes = static_cast<double>(runner_.weights().bytes_per_pass());
    std::printf(
        "prefill 512: %7.1f tokens/s (%5.1f GOP/s)   decode 1: %6.1f tokens/s (%4.1f GB/s of "
        "weights)   decode 8: %6.1f tokens/s (%5.1f GOP/s)\n",
        prefill, prefill * operations() / 1e9, one, one * weight_bytes / 1e9, eight,
        eight * operations() / 1e9);
    std::fflush(stdout);
  }

  // Of the layers' matrices, per token.
  double operations() const {
    const ModelConfig& c = runner_.config();
    const double layer = 2.0 * c.query_width() + 2.0 * c.kv_width() + 3.0 * c.feed_forward;
    return 2.0 * c.layers * layer * c.embedding;
  }

  Transformer& runner_;
  kernels::Device& device_;
  std::unique_ptr<kernels::Event> event_;
  std::vector<kernels::DeviceMemory> memory_;
  std::vector<Stream> streams_;
  std::vector<TokenId> prompt_;
  SamplingParams greedy_;
  StepResult result_;
};

int fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: model_bench MODEL.gguf [THREADS] [f32|f16|bf16] [REPEATS] [TILE_ROWS]\n");
    return 2;
  }
  const auto threads = static_cast<uint32_t>(
      argc > 2 ? std::atoi(argv[2]) : static_cast<int>(std::thread::hardware_concurrency()));
  const std::string kv = argc > 3 ? argv[3] : "f16";
  const auto level = kernels::cpu_level_from_environment();
  if (!level) return fail(level.error());
  const double start = seconds_now();
  const auto file = GgufFile::open(argv[1]);
  if (!file) return fail(file.error());
  auto device =
      kernels::make_cpu_device({.threads = threads, .level = std::string(cpu_level_name(*level))});
  const kernels::KvType type = kv == "f32"    ? kernels::KvType::kF32
                               : kv == "bf16" ? kernels::KvType::kBf16
                                              : kernels::KvType::kF16;
  auto runner =
      Transformer::create(*file, *device,
                          {.level = *level,
                           .kv_type = type,
                           .tile_rows = argc > 5 ? static_cast<uint32_t>(std::atoi(argv[5])) : 512,
                           .threads = threads});
  if (!runner) return fail(runner.error());
  std::printf("%s, %s KV, loaded in %.2f s\n", device->description().c_str(), kv.c_str(),
              seconds_now() - start);
  RealClock clock;
  EventfdParker parker;
  EngineLoop loop(clock, parker);
  Bench bench(**runner, *device);
  loop.run(bench.run(argc > 4 ? static_cast<uint32_t>(std::atoi(argv[4])) : 3));
  device.reset();
  return 0;
}

}  // namespace
}  // namespace spillway::model

int main(int argc, char** argv) { return spillway::model::run(argc, argv); }
