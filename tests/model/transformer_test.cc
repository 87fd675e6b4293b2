#include "model/transformer.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "model/reference.h"
#include "tests/model/distribution.h"
#include "tests/model/runner_harness.h"
#include "tests/model/tiny_models.h"

namespace spillway::model {
namespace {

using kernels::KvType;

class TinyModelTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Architectures, TinyModelTest, testing::ValuesIn(kTinyModels),
                         [](const auto& info) { return info.param; });

// Mean KL divergence from NumPy's logits, over the rows.
double mean_kl(const TinyModel& model, std::span<const float> log_probabilities) {
  const size_t width = model.logits.size() / model.tokens.size();
  double sum = 0;
  for (size_t row = 0; row < model.tokens.size(); ++row) {
    const auto expected = log_softmax(std::span(model.logits).subspan(row * width, width));
    sum += kl_divergence(expected, log_probabilities.subspan(row * width, width));
  }
  return sum / static_cast<double>(model.tokens.size());
}

TEST_P(TinyModelTest, plain_pass_gives_the_logits_of_numpy) {
  const TinyModel model(GetParam());
  const auto config = read_model_config(model.file);
  ASSERT_TRUE(config) << config.error().message;
  const auto tensors = find_model_tensors(model.file, *config);
  ASSERT_TRUE(tensors) << tensors.error().message;
  const std::vector<float> logits = reference_logits(*config, *tensors, model.tokens);
  EXPECT_LT(greatest_difference(model.logits, logits), 2e-4);
}

TEST_P(TinyModelTest, every_level_gives_the_distribution_of_numpy) {
  const TinyModel model(GetParam());
  for (kernels::CpuLevel level : kernels::available_cpu_levels()) {
    RunnerHarness harness(model.file, {.level = level, .kv_type = KvType::kF32});
    const double kl = mean_kl(model, harness.log_probabilities(model.tokens, {45}));
    EXPECT_LT(kl, is_quantized(GetParam()) ? 5e-3 : 1e-8) << kernels::cpu_level_name(level);
  }
}

TEST_P(TinyModelTest, every_kv_type_stays_near_numpy) {
  const TinyModel model(GetParam());
  for (auto [type, limit] : {std::pair{KvType::kF16, 5e-6}, std::pair{KvType::kBf16, 5e-4}}) {
    RunnerHarness harness(model.file, {.kv_type = type});
    const double kl = mean_kl(model, harness.log_probabilities(model.tokens, {45}));
    EXPECT_LT(kl, is_quantized(GetParam()) ? 5e-3 : limit);
    EXPECT_GT(kl, 0);
  }
}

// The same bits (DESIGN): chunks, tiles, threads and page size change no bit of any row.
TEST_P(TinyModelTest, chunks_threads_and_tiles_change_no_bit) {
  const TinyModel model(GetParam());
  RunnerHarness whole(model.file, {});
  const std::vector<float> expected = whole.log_probabilities(model.tokens, {45});
  struct Cut {
    uint32_t threads, tile_rows, page_tokens;
    std::vector<uint32_t> chunks;
  };
  for (const Cut& cut :
       {Cut{1, 512, 16, {1}}, Cut{2, 512, 16, {45}}, Cut{2, 7, 16, {45}},
        Cut{1, 1, 32, {16, 1, 15, 13}}, Cut{3, 16, 64, {3, 30, 12}}, Cut{2, 512, 16, {44, 1}}}) {
    RunnerHarness harness(
        model.file,
        {.threads = cut.threads, .tile_rows = cut.tile_rows, .page_tokens = cut.page_tokens});
    EXPECT_EQ(harness.log_probabilities(model.tokens, cut.chunks), expected)
        << cut.threads << " threads, tiles of " << cut.tile_rows << ", pages of " << cut.page_tokens
        << ", chunks from " << cut.chunks[0];
  }
}

// A prefix whose later layers come while the step runs gives the same bits.
TEST_P(TinyModelTest, a_prefix_that_comes_layer_by_layer_changes_no_bit) {
  const TinyModel model(GetParam());
  RunnerHarness whole(model.file, {});
  const std::vector<float> expected = whole.log_probabilities(model.tokens, {45});
  for (const uint32_t tile_rows : {512u, 7u}) {
    RunnerHarness harness(model.file, {.threads = 2, .tile_rows = tile_rows, .by_layers = true});
    for (const std::vector<uint32_t>& chunks :
         {std::vector<uint32_t>{16, 29}, std::vector<uint32_t>{32, 12, 1}}) {
      EXPECT_EQ(harness.log_probabilities(model.tokens, chunks), expected) << tile_rows;
    }
  }
}

// No sampler is to look at what comes of layers that never came.
TEST_P(TinyModelTest, a_step_whose_layers_fail_to_come_draws_nothing) {
  const TinyModel model(GetParam());
  for (const uint32_t abandon_at : {0u, 1u}) {
    RunnerHarness harness(model.file, {.threads = 2, .by_layers = true, .abandon_at = abandon_at});
    HarnessSequence sequence = harness.new_sequence();
    const std::span<const TokenId> tokens(model.tokens);
    const StepResult result =
        harness.step({{&sequence, tokens.first(32), {harness.whole_row(31)}}}, true);
    EXPECT_TRUE(result.samples[0][0].top.empty());
    const size_t begun_and_ended = 1 + abandon_at;
    EXPECT_EQ(result.stamps.size(), begun_and_ended);
  }
}

TEST_P(TinyModelTest, levels_with_fused_multiply_add_agree_in_every_bit) {
  const TinyModel model(GetParam());
  std::vector<float> expected;
  for (kernels::CpuLevel level : kernels::available_cpu_levels()) {
    if (level == kernels::CpuLevel::kBaseline) continue;
    RunnerHarness harness(model.file, {.level = level});
    const std::vector<float> rows = harness.log_probabilities(model.tokens, {45});
    if (expected.empty()) expected = rows;
    EXPECT_EQ(rows, expected) << kernels::cpu_level_name(level);
  }
}

// A sequence among others, prefilled and decoded in mixed steps, gives the rows it gives alone.
TEST_P(TinyModelTest, company_in_the_batch_changes_no_bit) {
  const TinyModel model(GetParam());
  RunnerHarness alone(model.file, {});
  const std::vector<float> expected = alone.log_probabilities(model.tokens, {45});
  const size_t width = alone.vocabulary();

  RunnerHarness harness(model.file, {.threads = 2, .tile_rows = 24});
  const std::span<const TokenId> tokens = model.tokens;
  std::vector<HarnessSequence> sequences;
  for (int i = 0; i < 4; ++i) sequences.push_back(harness.new_sequence());
  // Sequence i takes i + 1 tokens a step, all of the same text, until each has ended.
  for (bool more = true; more;) {
    more = false;
    std::vector<HarnessPart> parts;
    std::vector<size_t> rows;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const uint32_t at = sequences[i].position;
      const size_t count = std::min<size_t>(i + 1, tokens.size() - at);
      if (count == 0) continue;
      more = true;
      rows.push_back(at + count - 1);
      parts.push_back({&sequences[i],
                       tokens.subspan(at, count),
                       {harness.whole_row(static_cast<uint32_t>(count - 1))}});
    }
    if (!more) break;
    const StepResult result = harness.step(parts);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<const float> wanted = std::span(expected).subspan(rows[i] * width, width);
      ASSERT_EQ(harness.row_of(result.samples[i][0]),
                std::vector<float>(wanted.begin(), wanted.end()))
          << "row " << rows[i];
    }
  }
}

TEST(Transformer, several_samples_of_one_row_and_of_none) {
  const TinyModel model("llama_q4_1");
  RunnerHarness harness(model.file, {.threads = 2, .tile_rows = 4});
  HarnessSequence sequence = harness.new_sequence();
  SamplingParams greedy;
  greedy.temperature = 0;
  SampleRequest draw;
  draw.row = 9;
  draw.params = &greedy;
  SampleRequest score;
  score.row = 9;
  score.scored = 3;
  score.want_logprob = true;
  const StepResult result = harness.step(
      {{&sequence, std::span(model.tokens).first(10), {harness.whole_row(2), draw, score}}});
  ASSERT_EQ(result.samples[0].size(), 3u);
  const size_t width = harness.vocabulary();
  RunnerHarness other(model.file, {});
  const auto rows = other.log_probabilities(std::span(model.tokens).first(10), {10});
  const auto last = std::span(rows).subspan(9 * width, width);
  EXPECT_EQ(harness.row_of(result.samples[0][0]),
            std::vector<float>(rows.begin() + 2 * static_cast<ptrdiff_t>(width),
                               rows.begin() + 3 * static_cast<ptrdiff_t>(width)));
  EXPECT_EQ(result.samples[0][1].token, std::max_element(last.begin(), last.end()) - last.begin());
  EXPECT_EQ(result.samples[0][2].logprob, last[3]);
  // A step that asks for nothing writes KV all the same.
  const StepResult silent = harness.step({{&sequence, std::span(model.tokens).subspan(10, 5), {}}});
  EXPECT_TRUE(silent.samples[0].empty());
  const StepResult after =
      harness.step({{&sequence, std::span(model.tokens).subspan(15, 1), {harness.whole_row(0)}}});
  const auto all = other.log_probabilities(std::span(model.tokens).first(16), {16});
  EXPECT_EQ(harness.row_of(after.samples[0][0]),
            std::vector<float>(all.begin() + 15 * static_cast<ptrdiff_t>(width), all.end()));
}

// For the timeline: one worker says when each tile was where.
TEST(Transformer, a_stamped_step_tells_when_each_layer_ended) {
  const TinyModel model("llama_q4_1");
  RunnerHarness harness(model.file, {.threads = 2, .tile_rows = 16});
  const uint32_t layers = read_model_config(model.file)->layers;
  HarnessSequence sequence = harness.new_sequence();
  const std::span<const TokenId> tokens = model.tokens;
  EXPECT_TRUE(harness.step({{&sequence, tokens.first(4), {harness.whole_row(3)}}}).stamps.empty());
  const StepResult result =
      harness.step({{&sequence, tokens.subspan(4, 20), {harness.whole_row(19)}}}, true);
  std::vector<uint32_t> places, expected;
  for (const StepStamp& stamp : result.stamps) places.push_back(stamp.place);
  for (const bool sampled : {false, true}) {  // two tiles; nothing of the first is drawn
    for (uint32_t place = 0; place <= layers; ++place) expected.push_back(place);
    if (sampled) expected.push_back(StepStamp::kSampled);
  }
  EXPECT_EQ(places, expected);
  EXPECT_TRUE(std::is_sorted(result.stamps.begin(), result.stamps.end(),
                             [](const auto& a, const auto& b) { return a.at < b.at; }));
  EXPECT_GT(result.stamps.back().at, result.stamps.front().at);
}

// What the scheduler plans with is what the forward pass does.
TEST(Transformer, rows_pass_the_layers_together_up_to_a_tile_and_a_step) {
  const TinyModel model("llama_q4_1");
  TestDevice device(1);
  const auto rows_together = [&](uint32_t tile_rows, uint32_t batch_tokens_max) {
    const auto runner = Transformer::create(model.file, device,
                                            {.level = kernels::available_cpu_levels().back(),
                                             .batch_tokens_max = batch_tokens_max,
                                             .tile_rows = tile_rows});
    return runner ? (*runner)->rows_together_max() : 0;
  };
  EXPECT_EQ(rows_together(512, 2048), 512u);
  EXPECT_EQ(rows_together(512, 40), 40u);
  EXPECT_EQ(rows_together(7, 40), 7u);
}

TEST(Transformer, fingerprint_tells_models_and_formats_apart) {
  const TinyModel model("llama_q4_1");
  auto fingerprint = [&](const GgufFile& file, HarnessOptions options) {
    RunnerHarness harness(file, options);
    return harness.runner().shape().fingerprint;
  };
  const std::string mine = fingerprint(model.file, {});
  EXPECT_EQ(mine.size(), 32u);
  EXPECT_EQ(fingerprint(model.file, {.threads = 2, .tile_rows = 3}), mine);
  EXPECT_NE(fingerprint(model.file, {.kv_type = KvType::kF32}), mine);
  EXPECT_NE(fingerprint(model.file, {.page_tokens = 32}), mine);
  EXPECT_NE(fingerprint(TinyModel("llama_q5_0").file, {}), mine);
  EXPECT_NE(fingerprint(model.file, {.level = kernels::CpuLevel::kBaseline}), mine);
}

}  // namespace
}  // namespace spillway::model
