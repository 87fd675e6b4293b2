// What the engine's own thread does for a decode step of many streams, sampling and text aside: the
// real engine, cache and CPU device over a runner that draws without computing and a tokenizer
// without text. Each step sweeps through so much memory on the device's worker as a model's weights
// would, so that the engine finds its caches as cold as behind a real one. From the engine's own
// timeline (runtime/trace.h).
//
//   step_bench [STREAMS 32] [TOKENS 2000] [SWEEP_MIB 64]
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "bench/no_text.h"
#include "kernels/cpu_device.h"
#include "runtime/check.h"
#include "scheduler/engine.h"

namespace spillway::scheduler {
namespace {

constexpr uint32_t kContext = 4096;
constexpr uint32_t kPromptTokens = 16;

class SweepingRunner final : public model::Runner {
 public:
  SweepingRunner(kernels::Device& device, size_t sweep_bytes)
      : device_(device), swept_(sweep_bytes / sizeof(uint64_t), 1) {
    shape_.vocabulary = 1000;
    shape_.context_tokens_max = kContext;
    shape_.groups = {{.layers = 1, .kv_heads = 1, .head_dim = 64}};
    shape_.fingerprint = "none";
  }
  const model::RunnerShape& shape() const override { return shape_; }
  void bind_pages(std::vector<std::byte*>) override {}
  uint32_t batch_tokens_max() const override { return 2048; }
  uint32_t rows_together_max() const override { return 512; }
  void collect(const model::StepBatch&, model::StepResult&) override {}
  void enqueue(const model::StepBatch& batch, model::StepResult& result) override {
    result.stamps.clear();
    result.samples.resize(batch.sequences.size());
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      result.samples[s].resize(batch.sequences[s].samples.size());
    }
    device_.compute().launch([this, &result](kernels::Team&) {
      uint64_t sum = 0;
      for (const uint64_t word : swept_) sum += word;
      const auto token = static_cast<model::TokenId>(1 + sum % 2);
      for (auto& samples : result.samples) {
        for (model::SampleResult& sample : samples) sample.token = token;
      }
    });
  }

 private:
  kernels::Device& device_;
  model::RunnerShape shape_;
  std::vector<uint64_t> swept_;
};

class CountingSink final : public OutputSink {
 public:
  explicit CountingSink(uint32_t wanted) : left_(wanted) {}
  void on_output(Output output) override {
    if (!output.done) return;
    const std::lock_guard lock(mutex_);
    if (--left_ == 0) all_done_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_done_;
  uint32_t left_;
};

TraceSnapshot run(uint32_t streams, uint32_t tokens, size_t sweep_bytes) {
  const auto device = kernels::make_cpu_device({});
  SweepingRunner runner(*device, sweep_bytes);
  const bench::NoText tokenizer(runner.shape().vocabulary);
  EngineOptions options;
  const uint64_t pages = uint64_t{streams} * ((kPromptTokens + tokens) / 16 + 2);
  options.kv_device_bytes = pages * runner.shape().groups[0].page_bytes();
  options.context_tokens_max = kContext;
  options.sequences_max = streams;
  options.trace = true;
  auto engine = Engine::start(options, runner, *device, tokenizer);
  CHECK(engine.has_value());
  const auto sink = std::make_shared<CountingSink>(streams);
  for (uint32_t i = 0; i < streams; ++i) {
    Request request;
    request.prompt.assign(kPromptTokens, static_cast<model::TokenId>(1 + i));
    request.stop.max_tokens = tokens;
    request.stop.ignore_eos = true;
    CHECK((*engine)->submit(std::move(request), sink).has_value());
  }
  sink->wait();
  std::promise<TraceSnapshot> taken;
  (*engine)->take_trace({}, std::nullopt,
                        [&](TraceSnapshot snapshot) { taken.set_value(std::move(snapshot)); });
  return taken.get_future().get();
}

struct Spans {
  std::vector<double> before, after, beside;  // us
};

double microseconds(const TraceEvent& event) {
  return std::chrono::duration<double, std::micro>(event.end - event.begin).count();
}

// Of the steps in which all streams took part, but for the first and the last.
Spans spans_of(const TraceSnapshot& snapshot, uint32_t streams) {
  Clock::TimePoint begin = Clock::TimePoint::max(), end{};
  for (const TraceEvent& event : snapshot.events) {
    const bool whole = event.lane == TraceLane::kSteps &&
                       std::any_of(event.arguments.begin(), event.arguments.end(), [&](auto& one) {
                         return one.name == std::string_view("decoding") && one.value == streams;
                       });
    if (!whole) continue;
    begin = std::min(begin, event.end);
    end = std::max(end, event.begin);
  }
  Spans spans;
  for (const TraceEvent& event : snapshot.events) {
    if (event.lane != TraceLane::kEngine || event.begin < begin || event.end > end) continue;
    const std::string_view name = event.name;
    auto& of = name == "plan" ? spans.before : name == "deliver" ? spans.beside : spans.after;
    of.push_back(microseconds(event));
  }
  return spans;
}

double part(std::vector<double>& values, double share) {
  CHECK(values.size() >= 10);
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

uint32_t number(int argc, char** argv, int index, uint32_t otherwise) {
  return argc > index ? static_cast<uint32_t>(std::strtoul(argv[index], nullptr, 10)) : otherwise;
}

}  // namespace
}  // namespace spillway::scheduler

int main(int argc, char** argv) {
  using namespace spillway::scheduler;
  const uint32_t streams = number(argc, argv, 1, 32), tokens = number(argc, argv, 2, 2000);
  const uint32_t sweep_mib = number(argc, argv, 3, 64);
  Spans spans = spans_of(run(streams, tokens, size_t{sweep_mib} << 20), streams);
  std::printf("%u streams, %zu steps, %u MiB swept in each; us, median and nine of ten below:\n",
              streams, spans.before.size(), sweep_mib);
  const auto show = [](const char* what, std::vector<double>& of) {
    std::printf("  %-60s %6.1f %6.1f\n", what, part(of, 0.5), part(of, 0.9));
  };
  show("before: commands, admission, plan, pages, launch", spans.before);
  show("after: pages committed, tokens to their streams, rates", spans.after);
  show("beside, while the device computes: to the clients", spans.beside);
  std::printf("  before and after: %.1f\n", part(spans.before, 0.5) + part(spans.after, 0.5));
  return 0;
}
