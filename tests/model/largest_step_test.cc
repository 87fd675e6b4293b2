// The largest step is as large as any that an engine may ask for, and is run once for each that can
// be under way.
#include "model/largest_step.h"

#include <gtest/gtest.h>

#include <vector>

#include "model/step_result.h"
#include "tests/model/test_device.h"

namespace spillway::model {
namespace {

// Writes down what it is asked for.
class WatchedRunner final : public Runner {
 public:
  WatchedRunner() {
    shape_.vocabulary = 7;
    shape_.context_tokens_max = 100;
    shape_.groups = {{.layers = 1, .kv_heads = 1, .head_dim = 16},
                     {.layers = 1, .kv_heads = 1, .head_dim = 16, .window = 20}};
  }
  const RunnerShape& shape() const override { return shape_; }
  void bind_pages(std::vector<std::byte*> base) override { bound = std::move(base); }
  uint32_t batch_tokens_max() const override { return 64; }
  uint32_t rows_together_max() const override { return 64; }
  void enqueue(const StepBatch& batch, StepResult& result) override {
    ++steps;
    rows = shape_result(batch, result);
    sequences = batch.sequences.size();
    table_pages = 0;
    for (const SequenceStep& sequence : batch.sequences) {
      EXPECT_EQ(sequence.samples.size(), 1u);
      EXPECT_EQ(sequence.samples[0].row + 1, sequence.tokens.size());
      EXPECT_EQ(sequence.tables.size(), shape_.groups.size());
      const auto end = sequence.position + sequence.tokens.size();
      for (const auto& table : sequence.tables) EXPECT_EQ(table.size(), (end + 15) / 16);
      table_pages += sequence.tables[0].size();
    }
  }
  void collect(const StepBatch&, StepResult& result) override { result.failure = failure; }

  std::vector<std::byte*> bound;
  uint32_t steps = 0;
  size_t rows = 0, sequences = 0, table_pages = 0;
  std::string failure;

 private:
  RunnerShape shape_;
};

TEST(LargestStep, has_all_rows_and_all_sequences_at_the_end_of_their_context) {
  TestDevice device(1);
  WatchedRunner runner;
  ASSERT_TRUE(run_largest_step(runner, device, {.sequences = 5, .rows = 64, .context_tokens = 100})
                  .has_value());
  EXPECT_EQ(runner.bound.size(), 2u);
  EXPECT_EQ(runner.steps, 2u);
  EXPECT_EQ(runner.sequences, 5u);
  EXPECT_EQ(runner.rows, 64u);
  EXPECT_EQ(runner.table_pages, 4u * 7 + 4);  // of 100 tokens, and of the last one's 60
}

TEST(LargestStep, a_context_shorter_than_the_step_bounds_what_one_sequence_adds) {
  TestDevice device(1);
  WatchedRunner runner;
  ASSERT_TRUE(run_largest_step(runner, device, {.sequences = 1, .rows = 64, .context_tokens = 40})
                  .has_value());
  EXPECT_EQ(runner.rows, 40u);
  ASSERT_TRUE(run_largest_step(runner, device, {.sequences = 3, .rows = 64, .context_tokens = 40})
                  .has_value());
  EXPECT_EQ(runner.rows, 64u);
}

TEST(LargestStep, a_step_that_fails_is_an_error) {
  TestDevice device(1);
  WatchedRunner runner;
  runner.failure = "no memory for that";
  const auto ran =
      run_largest_step(runner, device, {.sequences = 2, .rows = 8, .context_tokens = 40});
  EXPECT_EQ(ran.error().message, "no memory for that");
  device.bytes_left = 100;
  EXPECT_EQ(run_largest_step(runner, device, {.sequences = 2, .rows = 8, .context_tokens = 40})
                .error()
                .code,
            ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace spillway::model
