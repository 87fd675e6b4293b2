// Attention of sequences that share the pages they begin with, in the model on a GPU: the bits are
// those of the CPU's, which computes every row alone.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/model/gpu_harness.h"
#include "tests/model/tiny_models.h"

namespace spillway::model {
namespace {

constexpr uint32_t kContext = 1600;

struct SharedPrefix {
  std::vector<TokenId> tokens;
  HarnessSequence shorter;  // a split of 512 tokens, and a page
  HarnessSequence longer;   // goes on from there to two splits and a page
};

class GpuAttentionTest : public testing::TestWithParam<std::string> {
 protected:
  GpuAttentionTest()
      : model_(GetParam()), cpu_(model_.file, {.keep_behind_windows = true}), random_(seed_) {}
  void SetUp() override { skip_without_fma(); }

  TokenId token() { return static_cast<TokenId>(random_() % cpu_.vocabulary()); }

  SharedPrefix prefix_on_cpu() {
    SharedPrefix made;
    for (uint32_t i = 0; i < 1040; ++i) made.tokens.push_back(token());
    const std::span<const TokenId> tokens(made.tokens);
    made.shorter = cpu_.new_sequence();
    cpu_.step({{&made.shorter, tokens.first(528), {}}});
    made.longer = made.shorter;
    cpu_.step({{&made.longer, tokens.subspan(528), {}}});
    return made;
  }

  // A token for each of many that go on from one of the two; a few rows of one more; a prompt.
  StepResult run(RunnerHarness& on, const HarnessSequence& shorter, const HarnessSequence& longer) {
    std::vector<HarnessSequence> sequences(9, longer);
    sequences.insert(sequences.begin() + 4, 4, shorter);
    sequences.push_back(on.new_sequence());
    const std::span<const TokenId> text(model_.tokens);
    std::vector<HarnessPart> parts;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const uint32_t rows = s + 1 == sequences.size() ? 40 : s == 6 ? 3 : 1;
      std::vector<SampleRequest> samples;
      for (uint32_t r = 0; r < rows; r += 13) samples.push_back(on.whole_row(r));
      parts.push_back({&sequences[s], text.subspan(s == 13 ? 0 : s, rows), samples});
    }
    return on.step(parts);
  }

  const uint32_t seed_ = std::random_device()();
  const TinyModel model_;
  RunnerHarness cpu_;
  std::mt19937 random_;
};
// One KV head for four: 8 rows fill half a tile. And a window beside full attention, and soft caps.
INSTANTIATE_TEST_SUITE_P(Models, GpuAttentionTest,
                         testing::Values("llama_mqa_llama3", "gemma3_soft_caps"),
                         [](const auto& info) { return info.param; });

TEST_P(GpuAttentionTest, sequences_over_common_pages_have_the_bits_of_the_cpu) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const SharedPrefix prefix = prefix_on_cpu();
  const StepResult expected = run(cpu_, prefix.shorter, prefix.longer);
  // Prompts by splits; then whole, and some rows at a time; then tiles of a step that part the
  // sequences.
  for (const GpuSetting& setting :
       {GpuSetting{.context_tokens_max = kContext},
        GpuSetting{
            .attention_scratch_bytes = 1, .attention_blocks = 1, .context_tokens_max = kContext},
        GpuSetting{.tile_rows = 11, .context_tokens_max = kContext}}) {
    GpuHarness gpu(model_.file, {.keep_behind_windows = true}, setting);
    const HarnessSequence longer = gpu.runs.adopt(cpu_, prefix.longer);
    HarnessSequence shorter = longer;  // the same pages
    shorter.position = prefix.shorter.position;
    for (auto& table : shorter.tables) table.resize(prefix.shorter.tables[0].size());
    expect_same(run(gpu.runs, shorter, longer), expected);
  }
}

}  // namespace
}  // namespace spillway::model
