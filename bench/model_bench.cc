// Tokens per second of a GGUF model without an engine around it, row by row, with the GB/s of
// weights and GOP/s beside, to compare with what the machine can do (docs/BENCHMARKS.md).
//
//   model_bench MODEL.gguf [THREADS] [f32|f16|bf16] [REPEATS] [TILE_ROWS] [ROW ...]
//   SPILLWAY_CPU forces a level
//
// A ROW is prefill:N (a prompt of N tokens), decode:S@N (S streams, one token each per step, behind
// N tokens each) or extend:M@N (M new tokens behind N that are cached). Without rows:
// prefill:512 decode:1@512 decode:8@512. Only the first stream's prompt is computed; the others
// get copies of its pages, so that each reads memory of its own, as streams do.
//
// On a machine that does other work, compare the processor time per token, which is printed too.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <span>
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

constexpr uint32_t kChunkTokens = 512;  // of a prompt, in one step
constexpr uint32_t kDecodeSteps = 32;

struct Row {
  enum class Kind { kPrefill, kDecode, kExtend };
  Kind kind = Kind::kPrefill;
  uint32_t streams = 1;
  uint32_t cached = 0;  // tokens of each stream that are there before the clock starts
  uint32_t fresh = 1;   // tokens of each stream that a timed pass adds
};

struct Stream {
  std::vector<std::vector<kernels::PageId>> tables;
  std::vector<TokenId> tokens;
  TokenId drawn = 0;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// None for what is no row. Numbers of 0 are none either.
std::optional<Row> parse_row(const std::string& text) {
  Row row;
  char end = 0;
  unsigned first = 0;
  unsigned behind = 0;
  if (std::sscanf(text.c_str(), "prefill:%u%c", &first, &end) == 1) {
    row.fresh = first;
  } else if (std::sscanf(text.c_str(), "decode:%u@%u%c", &first, &behind, &end) == 2) {
    row = {.kind = Row::Kind::kDecode, .streams = first, .cached = behind};
  } else if (std::sscanf(text.c_str(), "extend:%u@%u%c", &first, &behind, &end) == 2) {
    row = {.kind = Row::Kind::kExtend, .cached = behind, .fresh = first};
  } else {
    return std::nullopt;
  }
  if (first == 0 || (row.kind != Row::Kind::kPrefill && behind == 0)) return std::nullopt;
  return row;
}

// Owns the pages of as many streams as the widest row has, each as long as the longest.
class Bench {
 public:
  Bench(Transformer& runner, kernels::Device& device, std::span<const Row> rows)
      : runner_(runner), device_(device), event_(device.make_event()) {
    greedy_.temperature = 0;
    uint32_t streams = 1;
    uint32_t tokens = 0;
    for (const Row& row : rows) {
      streams = std::max(streams, row.streams);
      const uint32_t steps = row.kind == Row::Kind::kDecode ? kDecodeSteps : 1;
      tokens = std::max(tokens, row.cached + row.fresh * steps);
    }
    allocate(streams, tokens);
    for (uint32_t i = 0; i < tokens; ++i) {
      prompt_.push_back(
          static_cast<TokenId>((uint64_t{i} * 7919 + 17) % runner.shape().vocabulary));
    }
  }

  Task<> run(std::span<const Row> rows, uint32_t repeats) {
    for (uint32_t r = 0; r < repeats; ++r) {
      for (const Row& row : rows) {
        co_await prepare(row);
        const double start = processor_seconds();
        double seconds = 0;  // of a pass
        if (row.kind == Row::Kind::kDecode) {
          seconds = co_await decode(row.streams, row.cached);
        } else {
          seconds = co_await prompt(row.cached, row.cached + row.fresh);
        }
        if (row.kind == Row::Kind::kPrefill && row.fresh > filled_) {
          filled_ = row.fresh;
          copied_ = 1;
        }
        report(row, seconds, processor_seconds() - start);
      }
    }
  }

 private:
  void allocate(uint32_t streams, uint32_t tokens) {
    std::vector<std::byte*> bases;
    streams_.resize(streams);
    for (const kernels::KvGroupLayout& group : runner_.shape().groups) {
      const uint32_t pages = (tokens + group.page_tokens - 1) / group.page_tokens;
      stream_bytes_.push_back(size_t{group.page_bytes()} * pages);
      memory_.push_back(device_.allocate(stream_bytes_.back() * streams).value());
      bases.push_back(memory_.back().data);
      for (uint32_t s = 0; s < streams; ++s) {
        auto& table = streams_[s].tables.emplace_back();
        for (uint32_t i = 0; i < pages; ++i) table.push_back(kernels::PageId{s * pages + i});
      }
    }
    runner_.bind_pages(bases);
  }

  // Computes what the row finds cached, or as much of it as earlier rows have not. Their decoded
  // tokens may stand among it: this changes values, which nobody reads, and no time.
  Task<> prepare(const Row& row) {
    if (row.cached > filled_) {
      co_await prompt(filled_, row.cached);
      filled_ = row.cached;
      copied_ = 1;
    }
    for (; copied_ < row.streams; ++copied_) {
      for (size_t g = 0; g < memory_.size(); ++g) {
        std::memcpy(memory_[g].data + copied_ * stream_bytes_[g], memory_[g].data,
                    stream_bytes_[g]);
      }
    }
  }

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

  // Seconds of the first stream's prompt from token `begin` to `end`, in chunks.
  Task<double> prompt(uint32_t begin, uint32_t end) {
    double seconds = 0;
    for (uint32_t at = begin; at < end; at += kChunkTokens) {
      StepBatch batch;
      const uint32_t count = std::min(kChunkTokens, end - at);
      add(batch, streams_[0], std::span(prompt_).subspan(at, count), at);
      seconds += co_await step(batch);
    }
    co_return seconds;
  }

  // Seconds of a step of `count` streams, on average, as the peer's bench reckons.
  Task<double> decode(uint32_t count, uint32_t behind) {
    double seconds = 0;
    for (uint32_t s = 0; s < count; ++s) streams_[s].drawn = prompt_[s % prompt_.size()];
    for (uint32_t i = 0; i < kDecodeSteps; ++i) {
      StepBatch batch;
      for (uint32_t s = 0; s < count; ++s) {
        add(batch, streams_[s], std::span(&streams_[s].drawn, 1), behind + i);
      }
      seconds += co_await step(batch);
      for (uint32_t s = 0; s < count; ++s) streams_[s].drawn = result_.samples[s][0].token;
    }
    co_return seconds / kDecodeSteps;
  }

  void report(const Row& row, double seconds, double processor) const {
    const double tokens = static_cast<double>(row.streams) * row.fresh;
    const uint32_t passes = row.kind == Row::Kind::kDecode ? kDecodeSteps : 1;
    const double rate = tokens / seconds;
    if (row.kind == Row::Kind::kPrefill) {
      std::printf("prefill:%u", row.fresh);
    } else if (row.kind == Row::Kind::kDecode) {
      std::printf("decode:%u@%u", row.streams, row.cached);
    } else {
      std::printf("extend:%u@%u", row.fresh, row.cached);
    }
    std::printf(
        " %.1f tokens/s, %.2f ms, %.1f GOP/s, %.1f GB/s of weights, processor %.3f ms/token\n",
        rate, seconds * 1e3, rate * operations() / 1e9,
        static_cast<double>(runner_.weights().bytes_per_pass()) / seconds / 1e9,
        processor * 1e3 / (tokens * passes));
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
  std::vector<size_t> stream_bytes_;  // of a group's pages of one stream
  std::vector<Stream> streams_;
  std::vector<TokenId> prompt_;
  uint32_t filled_ = 0;  // tokens of the first stream that are computed
  uint32_t copied_ = 1;  // streams that hold them
  SamplingParams greedy_;
  StepResult result_;
};

int fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

constexpr char kUsage[] =
    "usage: model_bench MODEL.gguf [THREADS] [f32|f16|bf16] [REPEATS] [TILE_ROWS] [ROW ...]\n"
    "a row is prefill:N, decode:S@N or extend:M@N\n";

int usage() {
  std::fputs(kUsage, stderr);
  return 2;
}

int run(int argc, char** argv) {
  if (argc < 2) return usage();
  std::vector<std::string> names = {"prefill:512", "decode:1@512", "decode:8@512"};
  if (argc > 6) names.assign(argv + 6, argv + argc);
  std::vector<Row> rows;
  for (const std::string& name : names) {
    const auto row = parse_row(name);
    if (!row) return usage();
    rows.push_back(*row);
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
  Bench bench(**runner, *device, rows);
  loop.run(bench.run(rows, argc > 4 ? static_cast<uint32_t>(std::atoi(argv[4])) : 3));
  device.reset();
  return 0;
}

}  // namespace
}  // namespace spillway::model

int main(int argc, char** argv) { return spillway::model::run(argc, argv); }
