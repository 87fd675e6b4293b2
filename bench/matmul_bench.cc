// Matrix products beside what the machine can do at most: int8 dot products from registers, and
// reading memory. Two workers without barriers; the time is the CPU time of the workers, so that
// other load on the machine disturbs it little.
//
//   build/release/matmul_bench --benchmark_filter=Q4_1
//
// GOP/s counts a multiplication and an addition per weight and row; GB/s counts the packed weights
// once. Up to 32 rows walk 96 MB of matrices, as a small model does per step of that many streams.
#include <benchmark/benchmark.h>
#include <immintrin.h>
#include <time.h>

#include <barrier>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/matmul.h"

namespace spillway::kernels {
namespace {

constexpr uint32_t kWorkers = 2;

class BenchTeam final : public Team {
 public:
  explicit BenchTeam(uint32_t index) : index_(index) {}
  uint32_t index() const override { return index_; }
  uint32_t count() const override { return kWorkers; }
  void barrier() override {}

 private:
  uint32_t index_;
};

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs `work` on every worker; the mean CPU seconds of one.
double run_workers(const std::function<void(Team&)>& work) {
  std::vector<double> seconds(kWorkers);
  std::barrier<> start(kWorkers);
  std::vector<std::jthread> threads;
  for (uint32_t index = 0; index < kWorkers; ++index) {
    threads.emplace_back([&, index] {
      BenchTeam team(index);
      start.arrive_and_wait();
      const double before = thread_cpu_seconds();
      work(team);
      seconds[index] = thread_cpu_seconds() - before;
    });
  }
  threads.clear();
  double sum = 0;
  for (const double worker : seconds) sum += worker;
  return sum / kWorkers;
}

void report(benchmark::State& state, double seconds, double operations, double bytes) {
  state.counters["GOP/s"] = operations / seconds / 1e9;
  state.counters["GB/s"] = bytes / seconds / 1e9;
}

struct Case {
  const char* name;
  TensorType type;
  MatrixShape shape;
};

constexpr Case kCases[] = {
    {"Q4_1", TensorType::kQ4_1, {8192, 2048}},     {"Q4_1 up", TensorType::kQ4_1, {1536, 576}},
    {"Q4_1 down", TensorType::kQ4_1, {576, 1536}}, {"Q8_0 head", TensorType::kQ8_0, {49152, 576}},
    {"Q8_0", TensorType::kQ8_0, {2048, 640}},      {"Q5_0", TensorType::kQ5_0, {2048, 640}},
    {"Q4_K", TensorType::kQ4_K, {2048, 2048}},     {"Q6_K", TensorType::kQ6_K, {2048, 2048}},
    {"Q4_0", TensorType::kQ4_0, {2048, 2048}},     {"Q5_K", TensorType::kQ5_K, {2048, 2048}},
    {"Q2_K", TensorType::kQ2_K, {2048, 2048}},     {"Q3_K", TensorType::kQ3_K, {2048, 2048}},
    {"IQ4_NL", TensorType::kIq4Nl, {2048, 2048}},  {"F16", TensorType::kF16, {2048, 640}},
    {"F32", TensorType::kF32, {2048, 640}},
};

// Random codes; what they stand for does not matter for speed as long as it is finite.
std::vector<PackedMatrix> make_matrices(CpuLevel level, const Case& c, size_t bytes) {
  std::vector<std::byte> rows(c.shape.outputs * row_bytes(c.type, c.shape.inputs));
  std::mt19937 random(1);
  for (std::byte& byte : rows) byte = static_cast<std::byte>(random() & 0x3b);
  WeightArena arena;
  std::vector<PackedMatrix> out;
  for (size_t sum = 0; sum == 0 || sum < bytes; sum += out.back().bytes()) {
    out.push_back(PackedMatrix::pack(level, c.type, rows.data(), c.shape, &arena));
  }
  return out;
}

void product(benchmark::State& state, CpuLevel level, const Case& c, uint32_t rows) {
  const auto matrices = make_matrices(level, c, rows <= 32 ? 96u << 20 : 0);
  std::vector<float> x(size_t{rows} * c.shape.inputs);
  std::mt19937 random(2);
  for (float& value : x) value = std::normal_distribution<float>()(random);
  const ActivationBuffer buffer(level, x.size());
  const Activations view = buffer.view(x.data(), c.shape.inputs, rows, c.shape.inputs);
  quantize_rows(view, 0, rows);
  std::vector<float> y(size_t{rows} * c.shape.outputs);
  double seconds = 0;
  double count = 0;
  for (auto _ : state) {
    const double once = run_workers([&](Team& team) {
      for (const PackedMatrix& w : matrices) matmul(team, w, view, y.data(), c.shape.outputs);
    });
    state.SetIterationTime(once);
    seconds += once;
    count += static_cast<double>(matrices.size());
  }
  const double weights = double(c.shape.outputs) * c.shape.inputs;
  report(state, seconds, 2 * weights * rows * count,
         static_cast<double>(matrices[0].bytes()) * count);
}

// Rounding 512 rows to int8, and looking up 512 rows of an embedding.
void quantizing(benchmark::State& state, CpuLevel level) {
  constexpr uint32_t kRows = 512;
  constexpr uint32_t kInputs = 576;
  const std::vector<float> x(kRows * kInputs, 1.0f);
  const ActivationBuffer buffer(level, x.size());
  const Activations view = buffer.view(x.data(), kInputs, kRows, kInputs);
  for (auto _ : state) {
    state.SetIterationTime(run_workers([&](Team& team) { quantize(team, view); }));
  }
}

void looking_up(benchmark::State& state, TensorType type) {
  constexpr uint32_t kRows = 512;
  const Case c{"", type, {kRows, 1024}};
  const auto matrices = make_matrices(CpuLevel::kBaseline, c, 0);
  std::vector<float> row(c.shape.inputs);
  for (auto _ : state) {
    state.SetIterationTime(run_workers([&](Team&) {
      for (uint32_t i = 0; i < kRows; ++i) matrices[0].dequantize(i * 7 % kRows, row.data());
    }));
  }
}

__attribute__((target("avx512f,avx512vnni"))) void dot_loop(uint64_t rounds) {
  __m512i sums[12];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi32(1);
  for (uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, a);
    __asm__ volatile("" : "+v"(a));
  }
  for (__m512i& sum : sums) benchmark::DoNotOptimize(sum);
}

void int8_dot_peak(benchmark::State& state) {
  constexpr uint64_t kRounds = 2'000'000;
  double seconds = 0;
  for (auto _ : state) {
    const double once = run_workers([](Team&) { dot_loop(kRounds); });
    state.SetIterationTime(once);
    seconds += once;
  }
  report(state, seconds, double(state.iterations()) * kRounds * 12 * 128 * kWorkers, 0);
}

void read_bandwidth(benchmark::State& state) {
  constexpr size_t kBytes = size_t{96} << 20;
  const auto memory = allocate_weights(kBytes);
  std::memset(memory.get(), 1, kBytes);
  double seconds = 0;
  for (auto _ : state) {
    const double once = run_workers([&](Team& team) {
      const size_t half = kBytes / kWorkers;
      const std::byte* start = memory.get() + team.index() * half;
      const __m128i* from = reinterpret_cast<const __m128i*>(start);
      __m128i sums[4] = {};
      for (size_t i = 0; i < half / sizeof(__m128i); i += 4) {
        _mm_prefetch(reinterpret_cast<const char*>(from + i + 512), _MM_HINT_T0);
        for (int j = 0; j < 4; ++j) sums[j] = _mm_xor_si128(sums[j], _mm_loadu_si128(from + i + j));
      }
      for (__m128i& sum : sums) benchmark::DoNotOptimize(sum);
    });
    state.SetIterationTime(once);
    seconds += once;
  }
  report(state, seconds, 0, static_cast<double>(state.iterations()) * kBytes);
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace spillway::kernels

int main(int argc, char** argv) {
  using namespace spillway::kernels;
  add("read bandwidth", read_bandwidth);
  if (cpu_features().has(CpuLevel::kAvx512)) add("int8 dot peak", int8_dot_peak);
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ5_0, TensorType::kQ6_K}) {
    add("look up 512 rows of 1024/" + tensor_type_name(type),
        [type](benchmark::State& state) { looking_up(state, type); });
  }
  for (const CpuLevel level : available_cpu_levels()) {
    add(std::string(cpu_level_name(level)) + "/quantize 512 rows of 576",
        [level](benchmark::State& state) { quantizing(state, level); });
    for (const Case& c : kCases) {
      for (const uint32_t rows : {1u, 2u, 4u, 8u, 32u, 512u}) {
        const std::string name = std::string(cpu_level_name(level)) + "/" + c.name + "/" +
                                 std::to_string(c.shape.outputs) + "x" +
                                 std::to_string(c.shape.inputs) + "/rows:" + std::to_string(rows);
        add(name, [level, &c, rows](benchmark::State& state) { product(state, level, c, rows); });
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
