// The two real models on a GPU against an independent implementation, within the bounds that the
// CPU has (golden_test.cc), and bit for bit as on the CPU. Models that tools/setup has not fetched
// are left out: the small ones of tests/data/tiny/ have their own reference values
// (gpu_transformer_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include "tests/model/golden.h"
#include "tests/model/gpu_harness.h"
#include "tests/model/model_cache.h"

namespace spillway::model {
namespace {

struct Subject {
  const char* file;
  const char* golden;
  double kl_max;
};

class GpuGolden : public testing::TestWithParam<Subject> {};
INSTANTIATE_TEST_SUITE_P(
    Models, GpuGolden,
    testing::Values(Subject{kSmolLm2, "tests/data/golden/smollm2.gguf", 1.2 * 0.00607},
                    Subject{kGemma3, "tests/data/golden/gemma3.gguf", 1.2 * 0.00478}));

TEST_P(GpuGolden, real_models_agree_with_the_reference) {
  const Subject& subject = GetParam();
  const auto file = GgufFile::open(cached_model_path(subject.file));
  if (!file) GTEST_SKIP() << file.error().message << "; tools/setup --test fetches it";
  GpuHarness gpu(*file, {.pages = 512});
  const GoldenFigures figures = measure_golden(gpu.runs, read_golden(subject.golden), 10000, 1000);
  std::printf("%s: KL %.5f, top 3 off by %.3f (worst %.3f), NLL by %.4f\n", subject.file,
              figures.kl_mean(), figures.top3_mean(), figures.top3_worst(), figures.nll_worst);
  EXPECT_LE(figures.kl_mean(), subject.kl_max);
  EXPECT_EQ(figures.top1_wrong, 0u);
  EXPECT_LE(figures.top3_mean(), 0.12);
  EXPECT_LE(figures.nll_worst, 0.05);
  EXPECT_EQ(figures.greedy_wrong, "");
}

TEST_P(GpuGolden, real_models_have_the_bits_of_the_cpu_however_steps_are_cut) {
  const Subject& subject = GetParam();
  const auto file = GgufFile::open(cached_model_path(subject.file));
  if (!file) GTEST_SKIP() << file.error().message << "; tools/setup --test fetches it";
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < 1100; ++i)
    tokens.push_back(static_cast<TokenId>(100 + i * i * 7 % 20000));
  RunnerHarness cpu(*file, {.threads = 4});
  GpuHarness gpu(*file);
  HarnessSequence on_cpu = cpu.new_sequence();
  const StepResult expected = cpu.step({{&on_cpu, tokens, {cpu.whole_row(1099)}}});
  for (const uint32_t chunk : {1100u, 512u, 77u}) {
    HarnessSequence sequence = gpu.runs.new_sequence();
    StepResult got;
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      const auto part = std::span(tokens).subspan(at, std::min<size_t>(chunk, tokens.size() - at));
      std::vector<SampleRequest> samples;
      if (at + part.size() == tokens.size()) {
        samples.push_back(gpu.runs.whole_row(static_cast<uint32_t>(part.size()) - 1));
      }
      got = gpu.runs.step({{&sequence, part, samples}});
      ASSERT_EQ(got.failure, "");
    }
    EXPECT_EQ(gpu.runs.row_of(got.samples[0][0]), cpu.row_of(expected.samples[0][0])) << chunk;
    gpu.runs.release(sequence);
  }
}

}  // namespace
}  // namespace spillway::model
