// How fast text becomes tokens with the two real models, and a row of logits a token.
//
//   build/release/tokenizer_bench            figures: docs/BENCHMARKS.md
#include <benchmark/benchmark.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <numbers>
#include <string>
#include <vector>

#include "model/draw.h"
#include "model/sampler.h"
#include "model/tokenizer.h"
#include "tests/model/model_cache.h"

namespace spillway::model {
namespace {

// The license: prose, 11 KB; repeated, so that long texts meet known words as real ones do.
std::string prose(size_t bytes) {
  std::ifstream file("LICENSE");
  const std::string license((std::istreambuf_iterator<char>(file)), {});
  std::string text;
  while (text.size() < bytes && !license.empty()) text += license;
  text.resize(bytes);
  return text;
}

void encode(benchmark::State& state, const char* model, std::string_view unit) {
  const auto tokenizer = Tokenizer::create(open_cached_model(model)).value();
  const size_t bytes = static_cast<size_t>(state.range(0));
  std::string text = unit.empty() ? prose(bytes) : std::string();
  while (text.size() < bytes) text += unit;
  size_t tokens = 0;
  for (auto _ : state) tokens = tokenizer->encode(text, {}).size();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["tokens"] = static_cast<double>(tokens);
}

void smollm2_prose(benchmark::State& state) { encode(state, kSmolLm2, ""); }
void gemma3_prose(benchmark::State& state) { encode(state, kGemma3, ""); }
// Case A11: one word that is as long as the text.
void smollm2_one_letter(benchmark::State& state) { encode(state, kSmolLm2, "a"); }
void gemma3_one_letter(benchmark::State& state) { encode(state, kGemma3, "a"); }
BENCHMARK(smollm2_prose)->Arg(2000)->Arg(100000);
BENCHMARK(gemma3_prose)->Arg(2000)->Arg(100000);
BENCHMARK(smollm2_one_letter)->Arg(16384)->Arg(131072);
BENCHMARK(gemma3_one_letter)->Arg(16384)->Arg(131072);

// Normal noise of standard deviation 3 with a few tokens well above it.
std::vector<float> logits(size_t vocabulary) {
  std::vector<float> row(vocabulary);
  for (uint32_t i = 0; i < vocabulary; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - uniform_draw(1, 0, i)));
    row[i] =
        static_cast<float>(3 * radius * std::cos(2 * std::numbers::pi * uniform_draw(2, 0, i)));
    if (i % 997 == 0) row[i] += 8;
  }
  return row;
}

void sample(benchmark::State& state, const SamplingParams& params, uint32_t top_logprobs) {
  std::vector<float> row = logits(static_cast<size_t>(state.range(0)));
  SampleScratch scratch;
  SampleRequest request;
  request.params = &params;
  request.want_logprob = top_logprobs > 0;
  request.top_logprobs = top_logprobs;
  uint32_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sample_row(row, request, position++, scratch).token);
  }
}

void sample_greedy(benchmark::State& state) {
  sample(state, {.temperature = 0, .logit_bias = {}}, 0);
}
void sample_greedy_20_logprobs(benchmark::State& state) {
  sample(state, {.temperature = 0, .logit_bias = {}}, 20);
}
void sample_temperature(benchmark::State& state) {
  sample(state, {.temperature = 0.7f, .logit_bias = {}}, 0);
}
void sample_top_k(benchmark::State& state) {
  sample(state, {.top_k = 40, .top_p = 0.95f, .logit_bias = {}}, 0);
}
void sample_top_p(benchmark::State& state) { sample(state, {.top_p = 0.95f, .logit_bias = {}}, 0); }
void sample_min_p(benchmark::State& state) { sample(state, {.min_p = 0.05f, .logit_bias = {}}, 0); }
BENCHMARK(sample_greedy)->Arg(49152)->Arg(262144);
BENCHMARK(sample_greedy_20_logprobs)->Arg(49152)->Arg(262144);
BENCHMARK(sample_temperature)->Arg(49152)->Arg(262144);
BENCHMARK(sample_top_k)->Arg(49152)->Arg(262144);
BENCHMARK(sample_top_p)->Arg(49152)->Arg(262144);
BENCHMARK(sample_min_p)->Arg(49152)->Arg(262144);

}  // namespace
}  // namespace spillway::model

BENCHMARK_MAIN();
