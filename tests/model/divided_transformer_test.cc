// A model over several devices against the same model on one.
#include "model/divided_transformer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/block_until_done.h"
#include "kernels/cpu_device.h"
#include "tests/model/distribution.h"
#include "tests/model/runner_harness.h"
#include "tests/model/tiny_models.h"

namespace spillway::model {
namespace {

using kernels::KvType;

class DividedModelTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Architectures, DividedModelTest, testing::ValuesIn(kTinyModels),
                         [](const auto& info) { return info.param; });

// Four ranks of one stage would part blocks of the quantised models' 32 inputs.
std::vector<Division> divisions_of(const std::string& model) {
  std::vector<Division> all = {{2, 1}, {1, 2}, {2, 2}};
  if (!is_quantized(model)) all.push_back({4, 1});
  return all;
}

std::string name_of(const Division& division) {
  return std::to_string(division.tensor) + " x " + std::to_string(division.pipeline);
}

TEST_P(DividedModelTest, the_distribution_is_that_of_numpy) {
  const TinyModel model(GetParam());
  const size_t width = model.logits.size() / model.tokens.size();
  RunnerHarness one(model.file, {.kv_type = KvType::kF32});
  const std::vector<float> expected = one.log_probabilities(model.tokens, {45});
  for (const Division& division : divisions_of(GetParam())) {
    RunnerHarness harness(model.file, {.kv_type = KvType::kF32, .division = division});
    const std::vector<float> rows = harness.log_probabilities(model.tokens, {45});
    double kl = 0;
    for (size_t row = 0; row < model.tokens.size(); ++row) {
      const auto reference = log_softmax(std::span(model.logits).subspan(row * width, width));
      kl += kl_divergence(reference, std::span(rows).subspan(row * width, width));
    }
    kl /= static_cast<double>(model.tokens.size());
    EXPECT_LT(kl, is_quantized(GetParam()) ? 5e-3 : 1e-8) << name_of(division);
    if (!is_quantized(GetParam())) {
      EXPECT_LT(greatest_difference(expected, rows), 1e-4) << name_of(division);
    }
    // Stages add nothing up: one device's bits.
    if (division.tensor == 1) EXPECT_EQ(rows, expected);
  }
}

TEST_P(DividedModelTest, chunks_threads_and_tiles_change_no_bit) {
  const TinyModel model(GetParam());
  for (const Division& division : divisions_of(GetParam())) {
    RunnerHarness whole(model.file, {.division = division});
    const std::vector<float> expected = whole.log_probabilities(model.tokens, {45});
    struct Cut {
      uint32_t threads, tile_rows, page_tokens;
      std::vector<uint32_t> chunks;
    };
    for (const Cut& cut : {Cut{1, 512, 16, {1}}, Cut{2, 7, 16, {45}}, Cut{1, 1, 32, {16, 1, 28}},
                           Cut{1, 16, 64, {3, 30, 12}}}) {
      RunnerHarness harness(model.file, {.threads = cut.threads,
                                         .tile_rows = cut.tile_rows,
                                         .page_tokens = cut.page_tokens,
                                         .division = division});
      EXPECT_EQ(harness.log_probabilities(model.tokens, cut.chunks), expected)
          << name_of(division) << ", " << cut.threads << " threads, tiles of " << cut.tile_rows
          << ", pages of " << cut.page_tokens << ", chunks from " << cut.chunks[0];
    }
  }
}

// Two sequences of other lengths in one step, one of which asks for nothing.
TEST_P(DividedModelTest, company_in_the_batch_changes_no_bit) {
  const TinyModel model(GetParam());
  const std::span<const TokenId> tokens = model.tokens;
  for (const Division& division : divisions_of(GetParam())) {
    RunnerHarness harness(model.file, {.tile_rows = 8, .division = division});
    HarnessSequence alone = harness.new_sequence();
    const StepResult expected = harness.step({{&alone, tokens.first(20), {harness.whole_row(19)}}});
    HarnessSequence first = harness.new_sequence(), second = harness.new_sequence();
    const StepResult both = harness.step({{&first, tokens.subspan(5, 30), {}},
                                          {&second, tokens.first(20), {harness.whole_row(19)}}});
    EXPECT_EQ(harness.row_of(both.samples[1][0]), harness.row_of(expected.samples[0][0]))
        << name_of(division);
    const StepResult next = harness.step({{&second, tokens.subspan(20, 1), {harness.whole_row(0)}},
                                          {&first, tokens.subspan(35, 1), {}}});
    const StepResult next_alone =
        harness.step({{&alone, tokens.subspan(20, 1), {harness.whole_row(0)}}});
    EXPECT_EQ(harness.row_of(next.samples[0][0]), harness.row_of(next_alone.samples[0][0]));
  }
}

// One step over a text, whole, on a runner with pages 0, 1, 2 of memory of its own.
struct WholeStep {
  WholeStep(Runner& runner, kernels::Device& device, std::span<const TokenId> tokens) {
    std::vector<std::byte*> bases;
    SequenceStep& sequence = batch.sequences.emplace_back();
    for (const kernels::KvGroupLayout& group : runner.shape().groups) {
      const uint32_t pages =
          (static_cast<uint32_t>(tokens.size()) + group.page_tokens - 1) / group.page_tokens;
      memory.push_back(*device.allocate(pages * group.page_bytes()));
      bases.push_back(memory.back().data);
      std::memset(memory.back().data, 0xff, memory.back().bytes);
      auto& table = tables.emplace_back();
      for (uint32_t p = 0; p < pages; ++p) table.push_back(kernels::PageId{p});
    }
    for (const auto& table : tables) sequence.tables.push_back(table);
    sequence.tokens = tokens;
    for (uint32_t row = 0; row < tokens.size(); ++row) {
      SampleRequest request;
      request.row = row;
      request.top_logprobs = runner.shape().vocabulary;
      sequence.samples.push_back(request);
    }
    runner.bind_pages(bases);
    runner.enqueue(batch, result);
  }

  std::vector<kernels::DeviceMemory> memory;  // (group)
  std::vector<std::vector<kernels::PageId>> tables;
  StepBatch batch;
  StepResult result;
};

struct CpuRanks {
  CpuRanks(uint32_t ranks, uint32_t threads) {
    for (uint32_t r = 0; r < ranks; ++r) {
      devices.push_back(
          kernels::make_cpu_device({.threads = threads, .level = "test", .pin = false}));
      pointers.push_back(devices.back().get());
    }
  }
  std::vector<std::unique_ptr<kernels::Device>> devices;
  std::vector<kernels::Device*> pointers;
};

TransformerOptions options_of(uint32_t threads, uint32_t tile_rows) {
  return {
      .level = kernels::available_cpu_levels().back(), .tile_rows = tile_rows, .threads = threads};
}

// Devices that work at the same time, with many tiles under way, give the bits of devices that do
// everything at once.
TEST_P(DividedModelTest, devices_that_work_side_by_side_change_no_bit) {
  const TinyModel model(GetParam());
  for (const Division& division : divisions_of(GetParam())) {
    RunnerHarness harness(model.file, {.division = division});
    const std::vector<float> expected = harness.log_probabilities(model.tokens, {45});
    for (const uint32_t threads : {1u, 2u}) {
      CpuRanks ranks(division.ranks(), threads);
      const auto runner =
          DividedTransformer::create(model.file, ranks.pointers, division, options_of(threads, 4));
      ASSERT_TRUE(runner) << runner.error().message;
      for (int repeat = 0; repeat < 3; ++repeat) {
        WholeStep step(**runner, (*runner)->device(), model.tokens);
        const auto ended = (*runner)->device().make_event();
        (*runner)->device().compute().record(*ended);
        kernels::block_until_done(*ended);
        std::vector<float> rows;
        for (const SampleResult& sample : step.result.samples[0]) {
          const std::vector<float> row = harness.row_of(sample);
          rows.insert(rows.end(), row.begin(), row.end());
        }
        ASSERT_EQ(rows, expected) << name_of(division) << ", " << threads << " threads";
      }
    }
  }
}

// A rank writes the heads and layers that it owns, and no byte beside its part of a page. In the
// first layer nothing has been summed yet, so a head's K and V are one device's, bit by bit.
TEST_P(DividedModelTest, a_rank_keeps_the_heads_that_it_owns_in_its_part_of_the_page) {
  const TinyModel model(GetParam());
  const auto tokens = std::span(model.tokens).first(32);
  TestDevice device(1);
  const auto one = Transformer::create(model.file, device, options_of(1, 512)).value();
  WholeStep whole(*one, device, tokens);
  const uint32_t group = one->config().places[0].group;
  const kernels::KvGroupLayout layout = one->shape().groups[group];
  for (const Division& division : divisions_of(GetParam())) {
    std::vector<TestDevice> devices(division.ranks(), TestDevice(1));
    std::vector<kernels::Device*> pointers;
    for (TestDevice& each : devices) pointers.push_back(&each);
    const auto runner =
        DividedTransformer::create(model.file, pointers, division, options_of(1, 512)).value();
    WholeStep step(*runner, devices[0], tokens);
    const size_t page_bytes = runner->shape().groups[group].page_bytes();
    const std::span<std::byte> page(step.memory[group].data + page_bytes, page_bytes);
    const std::byte* expected = whole.memory[group].data + layout.page_bytes();
    size_t covered = 0;
    for (uint32_t r = 0; r < division.ranks(); ++r) {
      const RankShare& share = runner->share(r);
      const std::span<std::byte> part = runner->part_of_page(r, group, page);
      EXPECT_EQ(part.data(), page.data() + covered);
      covered += part.size();
      kernels::KvGroupLayout own = layout;
      own.kv_heads = share.kv_heads.count();
      if (share.layers.first > 0) continue;
      for (uint32_t head = 0; head < own.kv_heads; ++head) {
        EXPECT_EQ(std::memcmp(part.data() + own.offset(0, head, 0),
                              expected + layout.offset(0, share.kv_heads.first + head, 0),
                              layout.head_bytes()),
                  0)
            << name_of(division) << ", rank " << r << ", head " << head;
      }
      own.layers = static_cast<uint32_t>(
          config_of_rank(runner->config(), share).groups[group].layers.size());
      const auto padding = part.subspan(own.layer_bytes() * own.layers);
      EXPECT_TRUE(std::all_of(padding.begin(), padding.end(),
                              [](std::byte byte) { return byte == std::byte{0xff}; }));
    }
    EXPECT_EQ(covered, page_bytes);
  }
}

TEST(DividedTransformer, fingerprint_names_the_division) {
  const TinyModel model("llama_mqa_llama3");
  const auto fingerprint = [&](HarnessOptions options) {
    return RunnerHarness(model.file, options).runner().shape().fingerprint;
  };
  const std::string mine = fingerprint({.division = {2, 1}});
  EXPECT_EQ(mine.size(), 32u);
  EXPECT_EQ(fingerprint({.threads = 2, .tile_rows = 3, .division = {2, 1}}), mine);
  for (const Division& other : {Division{1, 1}, {1, 2}, {2, 2}, {4, 1}}) {
    EXPECT_NE(fingerprint({.division = other}), mine) << name_of(other);
  }
  EXPECT_NE(fingerprint({.kv_type = KvType::kF32, .division = {2, 1}}), mine);
}

TEST(DividedTransformer, what_cannot_be_divided_is_an_error) {
  const TinyModel model("llama_q4_1");
  CpuRanks ranks(4, 1);
  const auto runner =
      DividedTransformer::create(model.file, ranks.pointers, {.tensor = 4}, options_of(1, 512));
  ASSERT_FALSE(runner);
  EXPECT_NE(runner.error().message.find("--tensor-parallel-size 4"), std::string::npos);
}

}  // namespace
}  // namespace spillway::model
