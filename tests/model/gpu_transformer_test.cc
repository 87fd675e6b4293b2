// The transformer on a GPU (in gpu_model_test the emulator, in gpu_model_check a real one) against
// its twin on the CPU: the same bits, whatever the steps.
#include "model/gpu_transformer.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <random>

#include "tests/kernels/cuda/stream_at_once.h"
#include "tests/model/gpu_harness.h"
#include "tests/model/runner_harness.h"
#include "tests/model/tiny_models.h"

namespace spillway::model {
namespace {

using kernels::KvType;

class GpuTransformerTest : public testing::Test {
 protected:
  void SetUp() override { skip_without_fma(); }
};
class GpuModelTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { skip_without_fma(); }
};
INSTANTIATE_TEST_SUITE_P(Architectures, GpuModelTest, testing::ValuesIn(kTinyModels),
                         [](const auto& info) { return info.param; });

TEST_P(GpuModelTest, every_row_has_the_bits_of_the_cpu_however_the_steps_are_cut) {
  const TinyModel model(GetParam());
  RunnerHarness cpu(model.file, {});
  const std::vector<float> expected = cpu.log_probabilities(model.tokens, {45});
  struct Cut {
    GpuSetting setting;
    uint32_t page_tokens;
    std::vector<uint32_t> chunks;
  };
  // Tiles by splits and whole; then a query or two at a time, and two rows of logits.
  for (const Cut& cut : {Cut{{}, 16, {45}}, Cut{{.attention_blocks = 1}, 16, {20, 25}},
                         Cut{{.tile_rows = 7, .logit_rows_max = 2, .attention_scratch_bytes = 1},
                             32,
                             {30, 1, 14}}}) {
    GpuHarness gpu(model.file, {.page_tokens = cut.page_tokens}, cut.setting);
    EXPECT_EQ(gpu.runs.log_probabilities(model.tokens, cut.chunks), expected)
        << "tiles of " << cut.setting.tile_rows << " rows";
  }
}

// The fingerprint is made of what a probe computes: pages of one may go to the other.
TEST_P(GpuModelTest, fingerprint_is_that_of_the_cpu) {
  const TinyModel model(GetParam());
  RunnerHarness cpu(model.file, {});
  GpuHarness gpu(model.file);
  EXPECT_EQ(gpu.runs.runner().shape().fingerprint, cpu.runner().shape().fingerprint);
}

TEST_F(GpuTransformerTest, every_kv_type_has_the_bits_of_the_cpu) {
  const TinyModel model("gemma3_soft_caps");
  for (const KvType type : {KvType::kF32, KvType::kBf16}) {
    RunnerHarness cpu(model.file, {.kv_type = type});
    GpuHarness gpu(model.file, {.kv_type = type});
    EXPECT_EQ(gpu.runs.log_probabilities(model.tokens, {20, 25}),
              cpu.log_probabilities(model.tokens, {20, 25}));
  }
}

// What a request may ask of a row, all of it by chance.
class RandomSamples {
 public:
  RandomSamples(uint64_t seed, uint32_t vocabulary) : random_(seed), vocabulary_(vocabulary) {}

  uint32_t below(uint32_t end) {
    return std::uniform_int_distribution<uint32_t>(0, end - 1)(random_);
  }
  bool chance(uint32_t percent) { return below(100) < percent; }
  TokenId token() { return static_cast<TokenId>(below(vocabulary_)); }

  // For some of the rows; some rows have several. `history` is the sequence's text.
  std::vector<SampleRequest> of(uint32_t rows, std::span<const TokenId> history) {
    std::vector<SampleRequest> samples;
    for (uint32_t row = 0; row < rows; ++row) {
      const uint32_t count = chance(40) ? 1 + below(2) : 0;
      for (uint32_t i = 0; i < count; ++i) samples.push_back(one(row, i, history));
    }
    return samples;
  }

 private:
  SampleRequest one(uint32_t row, uint32_t choice, std::span<const TokenId> history) {
    SampleRequest request;
    request.row = row;
    request.choice = choice;
    if (chance(10)) {
      request.scored = token();
      request.want_logprob = true;
      return request;
    }
    SamplingParams& params = params_.emplace_back();
    request.params = &params;
    if (chance(60)) params.temperature = 0;
    if (chance(30)) params.top_k = static_cast<int32_t>(1 + below(20));
    if (chance(20)) params.top_p = 0.8f;
    if (chance(10)) params.repetition_penalty = 1.3f;
    if (chance(10)) params.presence_penalty = 0.7f;
    if (chance(10)) params.frequency_penalty = 0.2f;
    if (chance(10)) params.logit_bias = {{token(), 3.0f}};
    params.seed = below(1000);
    request.prompt = history.first(history.size() / 2);
    request.output = history.subspan(history.size() / 2);
    if (chance(10)) {
      const std::vector<TokenId>& banned =
          banned_.emplace_back(std::vector<TokenId>{token(), token()});
      request.banned = banned;
    }
    if (chance(15)) request.want_logprob = true;
    if (chance(15)) request.top_logprobs = 1 + below(5);
    return request;
  }

  std::mt19937_64 random_;
  const uint32_t vocabulary_;
  std::deque<SamplingParams> params_;  // stay in place
  std::deque<std::vector<TokenId>> banned_;
};

// Prompts' chunks and decoding tokens of several sequences in one step, every kind of sample.
TEST_P(GpuModelTest, mixed_steps_with_every_kind_of_sample_give_what_the_cpu_gives) {
  const TinyModel model(GetParam());
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RunnerHarness cpu(model.file, {});
  RandomSamples random(seed, cpu.vocabulary());
  const GpuSetting setting{.tile_rows = 6 + random.below(20),
                           .logit_rows_max = 1 + random.below(6)};
  GpuHarness gpu(model.file, {}, setting);
  constexpr size_t kSequences = 3;
  std::vector<HarnessSequence> on_cpu, on_gpu;
  std::vector<std::vector<TokenId>> texts(kSequences);
  for (size_t s = 0; s < kSequences; ++s) {
    on_cpu.push_back(cpu.new_sequence());
    on_gpu.push_back(gpu.runs.new_sequence());
    for (uint32_t i = 0; i < 40; ++i) texts[s].push_back(random.token());
  }
  for (int step = 0; step < 5; ++step) {
    std::vector<HarnessPart> parts, twins;
    for (size_t s = 0; s < kSequences; ++s) {
      const uint32_t at = on_cpu[s].position;
      const uint32_t rows = random.chance(40) ? 1 : 1 + random.below(7);
      if (random.chance(20)) continue;
      const std::span<const TokenId> text(texts[s]);
      const auto samples = random.of(rows, text.first(at));
      parts.push_back({&on_gpu[s], text.subspan(at, rows), samples});
      twins.push_back({&on_cpu[s], text.subspan(at, rows), samples});
    }
    if (parts.empty()) continue;
    const StepResult got = gpu.runs.step(parts);
    expect_same(got, cpu.step(twins));
  }
  for (size_t s = 0; s < kSequences; ++s) {
    for (size_t g = 0; g < cpu.runner().shape().groups.size(); ++g) {
      EXPECT_TRUE(gpu.runs.pages_of(on_gpu[s], g) == cpu.pages_of(on_cpu[s], g))
          << "pages of sequence " << s << ", group " << g;
    }
  }
}

// Rows whose logits come down are computed before those that the device draws from.
TEST_F(GpuTransformerTest, rows_that_the_device_does_not_draw_from_may_stand_anywhere) {
  const TinyModel model("llama_q4_1");
  RunnerHarness cpu(model.file, {});
  GpuHarness gpu(model.file, {}, {.logit_rows_max = 3});
  SamplingParams greedy;
  greedy.temperature = 0;
  const std::span<const TokenId> tokens = model.tokens;
  for (uint32_t wholes = 0; wholes < 16; wholes += 5) {  // a bit for each of four rows
    std::vector<SampleRequest> samples;
    for (uint32_t row = 0; row < 4; ++row) {
      SampleRequest& sample = samples.emplace_back();
      sample.row = row;
      sample.params = &greedy;
      sample.want_logprob = row % 2 == 0;
      sample.top_logprobs = wholes >> row & 1;
    }
    HarnessSequence on_cpu = cpu.new_sequence(), on_gpu = gpu.runs.new_sequence();
    const StepResult got = gpu.runs.step({{&on_gpu, tokens.first(4), samples}});
    expect_same(got, cpu.step({{&on_cpu, tokens.first(4), samples}}));
    cpu.release(on_cpu);
    gpu.runs.release(on_gpu);
  }
}

TEST_F(GpuTransformerTest, of_what_the_device_draws_no_logits_come_down) {
  const TinyModel model("llama_q4_1");
  kernels::cuda::StreamAtOnce stream;
  TestDevice* device = nullptr;
  RunnerHarness harness(
      [&](kernels::Device& made) -> std::unique_ptr<Runner> {
        device = static_cast<TestDevice*>(&made);
        return std::move(GpuTransformer::create(model.file, made,
                                                {.stream = stream.get(), .logit_rows_max = 2}))
            .value();
      },
      HarnessOptions{});
  SamplingParams greedy, drawn, penalised;
  greedy.temperature = 0;
  drawn.top_p = 0.9f;
  drawn.min_p = 0.01f;
  penalised.presence_penalty = 1;
  const size_t drawn_bytes = 2 * (sizeof(kernels::cuda::DeviceReport) + sizeof(int32_t)) + 8;
  const auto bytes_for = [&](std::vector<SampleRequest> samples) {
    HarnessSequence sequence = harness.new_sequence();
    for (uint32_t row = 0; row < samples.size(); ++row) samples[row].row = row;
    harness.step({{&sequence, std::span<const TokenId>(model.tokens).first(2), samples}});
    harness.release(sequence);
    return device->compute().last_copied;
  };
  SampleRequest greedy_row, drawn_row, reported_row, scored_row, penalised_row;
  greedy_row.params = &greedy;
  drawn_row.params = &drawn;
  reported_row.params = &drawn;
  reported_row.want_logprob = true;
  scored_row.scored = 3;
  penalised_row.params = &penalised;
  EXPECT_EQ(bytes_for({greedy_row, reported_row}), drawn_bytes);
  EXPECT_EQ(bytes_for({scored_row, drawn_row}), drawn_bytes);
  const size_t row_bytes = harness.vocabulary() * sizeof(float);
  EXPECT_EQ(bytes_for({drawn_row, penalised_row}), drawn_bytes + row_bytes);
}

// While a step runs, the next may be laid out and enqueued.
TEST_F(GpuTransformerTest, two_steps_may_be_under_way) {
  const TinyModel model("llama_q4_1");
  RunnerHarness cpu(model.file, {});
  GpuHarness gpu(model.file);
  HarnessSequence on_cpu = cpu.new_sequence(), on_gpu = gpu.runs.new_sequence();
  const std::span<const TokenId> tokens = model.tokens;
  std::unique_ptr<HarnessStep> before;
  std::vector<StepResult> results;
  for (uint32_t at = 0; at < 20; at += 4) {
    auto step = gpu.runs.enqueue({{&on_gpu, tokens.subspan(at, 4), {gpu.runs.whole_row(at / 5)}}});
    if (before != nullptr) results.push_back(gpu.runs.collect(std::move(before)));
    before = std::move(step);
  }
  results.push_back(gpu.runs.collect(std::move(before)));
  ASSERT_EQ(results.size(), 5u);
  for (uint32_t at = 0; at < 20; at += 4) {
    expect_same(results[at / 4],
                cpu.step({{&on_cpu, tokens.subspan(at, 4), {cpu.whole_row(at / 5)}}}));
  }
}

TEST_F(GpuTransformerTest, a_prefix_that_comes_layer_by_layer_changes_no_bit) {
  for (const char* name : {"gemma3_soft_caps", "qwen2_q8_0"}) {
    const TinyModel model(name);
    RunnerHarness whole(model.file, {});
    const std::vector<float> expected = whole.log_probabilities(model.tokens, {45});
    for (const uint32_t tile_rows : {512u, 7u}) {
      GpuHarness gpu(model.file, {.by_layers = true}, {.tile_rows = tile_rows});
      EXPECT_EQ(gpu.runs.log_probabilities(model.tokens, {16, 29}), expected) << tile_rows;
    }
  }
}

TEST_F(GpuTransformerTest, a_step_whose_layers_fail_to_come_draws_nothing) {
  const TinyModel model("llama_q4_1");
  for (const uint32_t abandon_at : {0u, 1u}) {
    GpuHarness gpu(model.file, {.by_layers = true, .abandon_at = abandon_at});
    HarnessSequence sequence = gpu.runs.new_sequence();
    const std::span<const TokenId> tokens(model.tokens);
    const StepResult result =
        gpu.runs.step({{&sequence, tokens.first(20), {gpu.runs.whole_row(19)}}});
    EXPECT_TRUE(result.samples[0][0].top.empty());
    EXPECT_EQ(result.failure, "");
  }
}

// Whichever operator it is. The step after it is whole again.
TEST_F(GpuTransformerTest, an_operator_that_fails_is_the_failure_of_its_step) {
  if (!kernels::cuda::StreamAtOnce::can_fail()) GTEST_SKIP() << "no operator fails here";
  const TinyModel model("llama_q4_1");
  GpuHarness gpu(model.file);
  const std::span<const TokenId> tokens(model.tokens);
  SamplingParams greedy;
  greedy.temperature = 0;
  SampleRequest draw;
  draw.row = 2;
  draw.params = &greedy;
  const auto step = [&] {
    HarnessSequence sequence = gpu.runs.new_sequence();
    const StepResult result = gpu.runs.step({{&sequence, tokens.first(3), {draw}}});
    gpu.runs.release(sequence);
    return result;
  };
  const uint64_t before = gpu.stream.launches();
  const StepResult whole = step();
  const uint64_t calls = gpu.stream.launches() - before;
  EXPECT_EQ(whole.failure, "");
  EXPECT_GT(calls, 30u);
  for (uint64_t at = 0; at < calls; at += at < 3 || at + 4 > calls ? 1 : 5) {
    const uint64_t last = gpu.stream.launches() + at;
    gpu.stream.fail_in(at);
    const StepResult failed = step();
    EXPECT_NE(failed.failure.find("CUDA error 719"), std::string::npos)
        << "call " << at << ": " << failed.failure;
    EXPECT_EQ(gpu.stream.launches() - 1, last) << "more was enqueued behind it";
    const StepResult after = step();
    EXPECT_EQ(after.failure, "");
    EXPECT_EQ(after.samples[0][0].token, whole.samples[0][0].token);
  }
  gpu.stream.fail_in(calls - 1);
  EXPECT_EQ(step().failure, "the GPU took no sample: CUDA error 719");
}

// As a GPU does (CudaDevice::take_error_of()): its failure is the step's, and of all after it.
TEST_F(GpuTransformerTest, a_refused_operator_ends_a_device_that_is_told_of_it) {
  const TinyModel model("llama_q4_1");
  kernels::cuda::StreamAtOnce stream;
  TestDevice* device = nullptr;
  RunnerHarness harness(
      [&](kernels::Device& made) -> std::unique_ptr<Runner> {
        device = static_cast<TestDevice*>(&made);
        const auto take_error = [device](const char* name, int error) {
          device->failed = Error{ErrorCode::kUnavailable,
                                 std::string(name) + " refused: " + std::to_string(error)};
        };
        return std::move(GpuTransformer::create(model.file, made,
                                                {.stream = stream.get(), .take_error = take_error}))
            .value();
      },
      HarnessOptions{});
  const std::span<const TokenId> tokens(model.tokens);
  HarnessSequence sequence = harness.new_sequence();
  EXPECT_EQ(harness.step({{&sequence, tokens.first(3), {harness.whole_row(2)}}}).failure, "");
  stream.fail_in(0);
  for (int step = 0; step < 2; ++step) {
    const StepResult failed = harness.step({{&sequence, tokens.first(3), {harness.whole_row(2)}}});
    EXPECT_EQ(failed.failure, "embedding refused: 719");
  }
}

TEST_F(GpuTransformerTest, a_device_without_memory_says_what_is_missing) {
  const TinyModel model("llama_q4_1");
  std::vector<std::string> messages;
  for (const size_t bytes : {size_t{1000}, size_t{400'000}, size_t{12} << 20}) {
    kernels::cuda::StreamAtOnce stream;
    TestDevice device(1);
    finish_launches(device, stream);
    device.bytes_left = bytes;
    const auto runner = GpuTransformer::create(
        model.file, device, {.stream = stream.get(), .attention_scratch_bytes = 1});
    if (runner) continue;
    messages.push_back(runner.error().message);
    EXPECT_EQ(runner.error().code, ErrorCode::kResourceExhausted);
  }
  ASSERT_GE(messages.size(), 2u);
  EXPECT_NE(messages[0].find("the weights take"), std::string::npos) << messages[0];
  EXPECT_NE(messages[1].find("a step takes"), std::string::npos) << messages[1];
}

// Events of a device that has ended are done, and what they stood for never was.
TEST_F(GpuTransformerTest, a_step_that_the_device_did_not_survive_has_failed) {
  const TinyModel model("llama_q4_1");
  kernels::cuda::StreamAtOnce stream;
  TestDevice* device = nullptr;
  RunnerHarness harness(
      [&](kernels::Device& made) -> std::unique_ptr<Runner> {
        device = static_cast<TestDevice*>(&made);
        finish_launches(made, stream);
        return std::move(GpuTransformer::create(model.file, made, {.stream = stream.get()}))
            .value();
      },
      HarnessOptions{});
  const std::span<const TokenId> tokens(model.tokens);
  HarnessSequence sequence = harness.new_sequence();
  device->failed = Error{ErrorCode::kIo, "the GPU fell off its bus"};
  const StepResult failed = harness.step({{&sequence, tokens.first(3), {harness.whole_row(2)}}});
  EXPECT_EQ(failed.failure, "the GPU fell off its bus");
  EXPECT_TRUE(failed.samples[0][0].top.empty());
}

// Rows of logits for as many sequences as there may be are provided for; a step that wants more,
// and finds no pinned memory for them, fails by itself.
TEST_F(GpuTransformerTest, no_step_allocates_but_one_of_more_whole_rows_than_sequences) {
  const TinyModel model("llama_q4_1");
  kernels::cuda::StreamAtOnce stream;
  TestDevice* device = nullptr;
  RunnerHarness harness(
      [&](kernels::Device& made) -> std::unique_ptr<Runner> {
        device = static_cast<TestDevice*>(&made);
        finish_launches(made, stream);
        return std::move(
                   GpuTransformer::create(
                       model.file, made,
                       {.stream = stream.get(), .batch_tokens_max = 45, .batch_sequences_max = 3}))
            .value();
      },
      HarnessOptions{});
  const std::span<const TokenId> tokens(model.tokens);
  device->bytes_left = 0;
  HarnessSequence one = harness.new_sequence(), two = harness.new_sequence();
  const SampleRequest row = harness.whole_row(0);
  EXPECT_EQ(harness.step({{&one, tokens.first(45), {row, harness.whole_row(44)}}}).failure, "");
  EXPECT_EQ(harness.step({{&one, tokens.first(1), {row}}, {&two, tokens.first(44), {row}}}).failure,
            "");
  EXPECT_EQ(harness.step({{&one, tokens.first(2), {row}}, {&two, tokens.first(9), {}}}).failure,
            "");

  HarnessSequence first = harness.new_sequence(), second = harness.new_sequence();
  std::vector<SampleRequest> rows;
  for (uint32_t r = 0; r < 40; ++r) rows.push_back(harness.whole_row(r));
  const StepResult failed = harness.step({{&first, tokens.first(40), rows}});
  EXPECT_NE(failed.failure.find("no memory is left"), std::string::npos) << failed.failure;
  device->bytes_left = SIZE_MAX;
  const StepResult good = harness.step({{&second, tokens.first(40), rows}});
  EXPECT_EQ(good.failure, "");
  EXPECT_EQ(good.samples[0][39].top.size(), harness.vocabulary());
}

TEST(AngleCache, gives_the_angles_of_any_position) {
  const kernels::RopeTable table = kernels::make_rope_table({.dims = 8});
  AngleCache cache(table, 50);
  for (const uint32_t position : {3u, 0u, 49u, 3u, 1u, 24u, 50u, 1000u, 49u}) {
    std::vector<float> expected(rope_angle_count(table));
    rope_angles(table, position, expected.data());
    const auto got = cache.at(position);
    EXPECT_EQ(std::vector<float>(got.begin(), got.end()), expected) << position;
  }
}

}  // namespace
}  // namespace spillway::model
