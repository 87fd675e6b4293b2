// Paged attention beside what a core can do at most: f32 FMA from registers, and reading memory.
// One worker, timed in its CPU seconds, so that other load on the machine disturbs it little.
//
//   build/release/attention_bench --benchmark_filter=avx512
//
// GFLOP/s counts 4 x head_dim for every pair of a query head's row and a token that it sees; GB/s
// counts K and V of the tokens once per kv head (decode reads no more). "of_peak" and "of_read" are
// the shares of the two limits, measured once before. Decode but the hot one walks layers of 96 MB
// in all; the time is of all its layers, "us_a_layer" of one.
#include <benchmark/benchmark.h>
#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/aligned_floats.h"
#include "kernels/attention.h"
#include "kernels/ops.h"

namespace spillway::kernels {
namespace {

class OneWorker final : public Team {
 public:
  uint32_t index() const override { return 0; }
  uint32_t count() const override { return 1; }
  void barrier() override {}
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double timed(const std::function<void()>& work) {
  const double before = cpu_seconds();
  work();
  return cpu_seconds() - before;
}

#define SPILLWAY_FMA_LOOP(name, target_set, type, set, multiply_add)   \
  __attribute__((target(target_set))) void name(uint64_t rounds) {     \
    type sums[12];                                                     \
    type factor = set(0.5f);                                           \
    for (type & sum : sums) sum = set(1.0f);                           \
    for (uint64_t i = 0; i < rounds; ++i) {                            \
      for (type & sum : sums) sum = multiply_add(sum, factor, factor); \
      __asm__ volatile("" : "+v"(factor));                             \
    }                                                                  \
    for (type & sum : sums) benchmark::DoNotOptimize(sum);             \
  }
SPILLWAY_FMA_LOOP(fma_loop_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps)
SPILLWAY_FMA_LOOP(fma_loop_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)
#undef SPILLWAY_FMA_LOOP

// FLOP per second of one core; the best of several tries. 0 where the level has no FMA.
double fma_peak(CpuLevel level) {
  constexpr uint64_t kRounds = 1'000'000;
  if (level < CpuLevel::kAvx2) return 0;
  const bool wide = level >= CpuLevel::kAvx512;
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    best = std::min(best, timed([&] { wide ? fma_loop_avx512(kRounds) : fma_loop_avx2(kRounds); }));
  }
  return kRounds * 12.0 * 2 * (wide ? 16 : 8) / best;
}

// Bytes per second that one core reads out of 96 MB.
double read_rate() {
  std::vector<uint64_t> memory((96u << 20) / sizeof(uint64_t), 1);
  double best = 1e9;
  for (int round = 0; round < 4; ++round) {
    best =
        std::min(best, timed([&] {
                   const auto* from = reinterpret_cast<const __m128i*>(memory.data());
                   __m128i sums[4] = {};
                   for (size_t i = 0; i < memory.size() / 2; i += 4) {
                     __builtin_prefetch(from + i + 1024, 0, 2);  // 16 KB ahead, as attention does
                     for (int j = 0; j < 4; ++j)
                       sums[j] = _mm_xor_si128(sums[j], _mm_loadu_si128(from + i + j));
                   }
                   for (__m128i& sum : sums) benchmark::DoNotOptimize(sum);
                 }));
  }
  return static_cast<double>(96u << 20) / best;
}

struct Limits {
  double flops = 0;
  double bytes = 0;
};

// Measured once for each level, before its first case.
const Limits& limits(CpuLevel level) {
  static std::map<CpuLevel, Limits> known;
  const auto [at, added] = known.try_emplace(level);
  if (added) at->second = {fma_peak(level), read_rate()};
  return at->second;
}

struct Model {
  const char* name;
  uint32_t heads, kv_heads, head_dim, window;
};
constexpr Model kModels[] = {{"smollm2", 9, 3, 64, 0},
                             {"gemma3", 4, 1, 256, 0},
                             {"gemma3_window", 4, 1, 256, 512},
                             {"mha128", 8, 8, 128, 0}};

struct Load {
  const char* name;
  uint32_t sequences, position, rows;
  bool cold = false;  // walk 96 MB of layers
};
constexpr Load kLoads[] = {{"prefill_512", 1, 0, 512},
                           {"prefill_2048", 1, 0, 2048},
                           {"chunk_512_at_7680", 1, 7680, 512},
                           {"chunk_16_at_0", 1, 0, 16},
                           {"decode_1_at_512_hot", 1, 511, 1},
                           {"decode_1_at_512", 1, 511, 1, true},
                           {"decode_1_at_8192", 1, 8191, 1, true},
                           {"decode_8_at_1024", 8, 1023, 1, true}};

const char* type_name(KvType type) {
  return type == KvType::kF16 ? "f16" : type == KvType::kBf16 ? "bf16" : "f32";
}

// Pages of random finite values in a scattered order.
struct Pool {
  Pool(const KvGroupLayout& layout, const Load& load) : page_bytes(layout.page_bytes()) {
    const uint32_t each = (load.position + load.rows + 15) / 16;
    bytes.resize(page_bytes * each * load.sequences / sizeof(uint32_t));
    std::minstd_rand random(1);
    // f32, f16 and bf16 alike: exponents near 1, so all is finite and small.
    for (uint32_t& word : bytes) word = (static_cast<uint32_t>(random()) & 0x83ff83ff) | 0x38003800;
    for (uint32_t i = 0; i < each * load.sequences; ++i) pages.push_back(PageId{i});
    std::shuffle(pages.begin(), pages.end(), random);
    for (uint32_t s = 0; s < load.sequences; ++s) {
      sequences.push_back({.kv = {.layout = &layout,
                                  .pages = reinterpret_cast<std::byte*>(bytes.data()),
                                  .table = {pages.data() + s * each, each}},
                           .position = load.position,
                           .rows = load.rows,
                           .first_row = s * load.rows});
    }
  }

  size_t page_bytes;
  std::vector<uint32_t> bytes;
  std::vector<PageId> pages;
  std::vector<AttentionSequence> sequences;
};

double seen_tokens(const Model& model, const Load& load) {
  double seen = 0;
  for (uint32_t r = 0; r < load.rows; ++r) {
    const uint32_t all = load.position + r + 1;
    seen += model.window != 0 ? std::min(all, model.window) : all;
  }
  return seen * load.sequences;
}

void attention(benchmark::State& state, CpuLevel level, const Model& model, const Load& load,
               KvType type) {
  KvGroupLayout layout{.layers = 1,
                       .kv_heads = model.kv_heads,
                       .head_dim = model.head_dim,
                       .window = model.window,
                       .type = type};
  const double tokens = double(load.position + load.rows) * load.sequences;
  if (load.cold) {
    layout.layers =
        std::max(1u, static_cast<uint32_t>((96u << 20) / (layout.layer_bytes() / 16.0 * tokens)));
  }
  const double limit_flops = limits(level).flops;
  const double limit_bytes = limits(level).bytes;
  const Pool pool(layout, load);
  AttentionPlan plan(level, layout, {.heads = model.heads, .scale = 0.1f});
  plan.prepare(pool.sequences, 1);
  const size_t stride = size_t{model.heads} * model.head_dim;
  AlignedFloats q(stride * load.rows * load.sequences), out(stride * load.rows * load.sequences);
  for (size_t i = 0; i < stride * load.rows * load.sequences; ++i)
    q.data()[i] = static_cast<float>(i % 37) * 0.05f - 1;
  OneWorker team;
  double seconds = 0;
  for (auto _ : state) {
    const double once = timed([&] {
      for (uint32_t layer = 0; layer < layout.layers; ++layer) {
        plan.run(team, layer, {q.data(), out.data(), stride, stride});
      }
    });
    state.SetIterationTime(once);
    seconds += once / layout.layers;
  }
  const double flops = seen_tokens(model, load) * model.heads * model.head_dim * 4.0;
  const double seen_last =
      model.window != 0 ? std::min(tokens, 1.0 * model.window * load.sequences) : tokens;
  const double bytes = seen_last * layout.layer_bytes() / layout.page_tokens;
  const double rate = state.iterations() / seconds;
  state.counters["us_a_layer"] = 1e6 / rate;
  state.counters["GFLOP/s"] = flops * rate / 1e9;
  state.counters["GB/s"] = bytes * rate / 1e9;
  if (limit_flops > 0) state.counters["of_peak"] = flops * rate / limit_flops;
  state.counters["of_read"] = bytes * rate / limit_bytes;
}

}  // namespace
}  // namespace spillway::kernels

int main(int argc, char** argv) {
  using namespace spillway::kernels;
  for (const CpuLevel level : available_cpu_levels()) {
    if (level == CpuLevel::kAvxVnni) continue;  // shares the kernels of kAvx2
    for (const Model& model : kModels) {
      for (const Load& load : kLoads) {
        for (const KvType type : {KvType::kF16, KvType::kBf16, KvType::kF32}) {
          const std::string name = std::string(cpu_level_name(level)) + "/" + model.name + "/" +
                                   load.name + "/" + type_name(type);
          benchmark::RegisterBenchmark(name.c_str(),
                                       [=, &model, &load](benchmark::State& state) {
                                         attention(state, level, model, load, type);
                                       })
              ->UseManualTime()
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
