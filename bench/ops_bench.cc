// Row operators at the shapes of SmolLM2 (hidden 576, feed forward 1,536, 12 heads of 64, 30
// layers), over 512 rows as in a prefill: "us_a_token" is what a token of the whole model spends in
// each, on one core, in CPU seconds; quantising is the matrix products' and stands beside it.
//
//   build/release/ops_bench --benchmark_filter=avx512
#include <benchmark/benchmark.h>
#include <time.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/activations.h"
#include "kernels/ops.h"

namespace spillway::kernels {
namespace {

constexpr uint32_t kRows = 512;
constexpr uint32_t kHidden = 576;
constexpr uint32_t kFeedForward = 1536;
constexpr uint32_t kHeads = 12;  // 9 of q and 3 of k
constexpr uint32_t kHeadDim = 64;
constexpr uint32_t kLayers = 30;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Rows {
  explicit Rows(size_t width) : stride(width), data(width * kRows) {
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 89) * 0.03f - 1.2f;
  }
  float* row(uint32_t r) { return data.data() + r * stride; }

  size_t stride;
  std::vector<float> data;
};

// Times `work` on all rows; `times` is how often a token meets it in the model.
void measure(benchmark::State& state, uint32_t times, const std::function<void(uint32_t)>& work) {
  double seconds = 0;
  for (auto _ : state) {
    const double before = cpu_seconds();
    for (uint32_t r = 0; r < kRows; ++r) work(r);
    const double once = cpu_seconds() - before;
    state.SetIterationTime(once);
    seconds += once;
  }
  state.counters["us_a_token"] =
      1e6 * seconds * times / (static_cast<double>(state.iterations()) * kRows);
}

void add(CpuLevel level, const char* name, const std::function<void(benchmark::State&)>& run) {
  const std::string full = std::string(cpu_level_name(level)) + "/" + name;
  benchmark::RegisterBenchmark(full.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

void add_level(CpuLevel level) {
  const RowOps& ops = row_ops(level);
  add(level, "rms_norm", [&ops](benchmark::State& state) {
    Rows x(kHidden), y(kHidden), weight(kHidden);
    measure(state, 2 * kLayers + 1,
            [&](uint32_t r) { ops.rms_norm(y.row(r), x.row(r), weight.row(0), kHidden, 1e-5f); });
  });
  add(level, "rope", [&ops](benchmark::State& state) {
    Rows x(kHeads * kHeadDim);
    const RopeTable table = make_rope_table({.dims = kHeadDim});
    Rows angles(rope_angle_count(table));
    for (uint32_t r = 0; r < kRows; ++r) rope_angles(table, r, angles.row(r));
    measure(state, kLayers,
            [&](uint32_t r) { ops.rope(x.row(r), kHeads, kHeadDim, table, angles.row(r)); });
  });
  add(level, "rope_angles", [](benchmark::State& state) {
    const RopeTable table = make_rope_table({.dims = kHeadDim});
    Rows angles(rope_angle_count(table));
    measure(state, 1, [&](uint32_t r) { rope_angles(table, r + 1000, angles.row(r)); });
  });
  add(level, "silu_mul", [&ops](benchmark::State& state) {
    Rows gate(kFeedForward), up(kFeedForward), y(kFeedForward);
    measure(state, kLayers,
            [&](uint32_t r) { ops.silu_mul(y.row(r), gate.row(r), up.row(r), kFeedForward); });
  });
  add(level, "gelu_mul", [&ops](benchmark::State& state) {
    Rows gate(kFeedForward), up(kFeedForward), y(kFeedForward);
    measure(state, kLayers,
            [&](uint32_t r) { ops.gelu_mul(y.row(r), gate.row(r), up.row(r), kFeedForward); });
  });
  add(level, "add", [&ops](benchmark::State& state) {
    Rows x(kHidden), y(kHidden);
    measure(state, 2 * kLayers, [&](uint32_t r) { ops.add(y.row(r), x.row(r), kHidden); });
  });
  add(level, "quantize_hidden", [level](benchmark::State& state) {
    Rows x(kHidden);
    const ActivationBuffer buffer(level, x.data.size());
    const Activations view = buffer.view(x.row(0), kHidden, kRows, kHidden);
    measure(state, 3 * kLayers + 1, [&](uint32_t r) { quantize_rows(view, r, r + 1); });
  });
  add(level, "quantize_feed_forward", [level](benchmark::State& state) {
    Rows x(kFeedForward);
    const ActivationBuffer buffer(level, x.data.size());
    const Activations view = buffer.view(x.row(0), kFeedForward, kRows, kFeedForward);
    measure(state, kLayers, [&](uint32_t r) { quantize_rows(view, r, r + 1); });
  });
  add(level, "row_stats_49152", [&ops](benchmark::State& state) {
    Rows x(49152 / 64);  // 512 of these rows hold eight rows of the vocabulary
    measure(state, 1, [&](uint32_t r) {
      if (r % 64 == 0) benchmark::DoNotOptimize(ops.row_stats(x.row(r), 49152));
    });
  });
}

}  // namespace
}  // namespace spillway::kernels

int main(int argc, char** argv) {
  using namespace spillway::kernels;
  for (const CpuLevel level : available_cpu_levels()) {
    if (level != CpuLevel::kAvxVnni) add_level(level);  // which shares the functions of kAvx2
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
