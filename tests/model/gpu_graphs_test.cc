// Decoding steps whose layers are launched as graphs: the bits are the CPU's, whatever a step is
// padded to, whatever came between, and when there can be no graphs.
#include "model/gpu_graphs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_graph.h"
#include "tests/emulator/simulated_cuda.h"
#include "tests/model/gpu_harness.h"
#include "tests/model/tiny_models.h"

namespace spillway::model {
namespace {

uint64_t calls(const char* name) { return emulator::SimulatedCuda::current().calls(name); }

GpuSetting with_graphs(GpuSetting setting) {
  setting.make_graphs = [](CUstream_st* stream) -> std::unique_ptr<kernels::cuda::GraphMaker> {
    return std::make_unique<kernels::cuda::CudaGraphs>(std::make_shared<kernels::cuda::Health>(0),
                                                       stream);
  };
  return setting;
}

// Sequences on the CPU and on a GPU with graphs, whose steps give the same.
class Twins {
 public:
  Twins(const std::string& name, const GpuSetting& setting,
        const HarnessOptions& options = {.pages = 256, .keep_behind_windows = true})
      : model_(name),
        cpu_(model_.file, options),
        gpu_(model_.file, options, with_graphs(setting)) {}

  // Of so many tokens, which the CPU computes for both.
  void add_sequence(uint32_t tokens) {
    on_cpu_.push_back(cpu_.new_sequence());
    std::vector<TokenId> text;
    for (uint32_t i = 0; i < tokens; ++i) text.push_back(token(i));
    cpu_.step({{&on_cpu_.back(), text, {}}});
    on_gpu_.push_back(gpu_.runs.adopt(cpu_, on_cpu_.back()));
  }
  // Others that go on from the first, in its pages.
  void share_first(uint32_t more) {
    on_cpu_.resize(1 + more, on_cpu_[0]);
    on_gpu_.resize(1 + more, on_gpu_[0]);
  }

  // A token for each of the first `count`: one is drawn, or its whole row is, or nothing.
  void decode(uint32_t count) { step(count, 1); }
  void step(uint32_t count, uint32_t rows) {
    ++steps_;
    SamplingParams greedy;
    greedy.temperature = 0;
    std::vector<std::vector<TokenId>> texts(count);
    std::vector<HarnessPart> parts, twins;
    for (uint32_t s = 0; s < count; ++s) {
      for (uint32_t r = 0; r < rows; ++r) texts[s].push_back(token(17 * s + steps_ + r));
      std::vector<SampleRequest> samples;
      const uint32_t kind = (s + steps_) % 4;
      if (kind < 2) {
        samples.emplace_back().params = &greedy;
      } else if (kind == 2) {
        samples.push_back(cpu_.whole_row(rows - 1));
      }
      parts.push_back({&on_gpu_[s], texts[s], samples});
      twins.push_back({&on_cpu_[s], texts[s], samples});
    }
    SCOPED_TRACE(testing::Message() << "step " << steps_ << " of " << count);
    const StepResult got = gpu_.runs.step(parts);
    expect_same(got, cpu_.step(twins));
  }
  void decode_times(uint32_t count, int times) {
    for (int i = 0; i < times; ++i) decode(count);
  }

  void expect_same_pages() {
    for (size_t s = 0; s < on_cpu_.size(); ++s) {
      for (size_t g = 0; g < cpu_.runner().shape().groups.size(); ++g) {
        EXPECT_TRUE(gpu_.runs.pages_of(on_gpu_[s], g) == cpu_.pages_of(on_cpu_[s], g))
            << "pages of sequence " << s << ", group " << g;
      }
    }
  }
  GpuHarness& gpu() { return gpu_; }
  const HarnessSequence& on_gpu(size_t s) const { return on_gpu_[s]; }

 private:
  TokenId token(uint32_t i) const { return model_.tokens[i % model_.tokens.size()]; }

  const TinyModel model_;
  RunnerHarness cpu_;
  GpuHarness gpu_;
  std::vector<HarnessSequence> on_cpu_, on_gpu_;
  uint32_t steps_ = 0;
};

class GpuGraphsTest : public testing::Test {
 protected:
  void SetUp() override { skip_without_fma(); }
};
class GpuGraphsModelTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { skip_without_fma(); }
};
INSTANTIATE_TEST_SUITE_P(Models, GpuGraphsModelTest,
                         testing::Values("gemma3_soft_caps", "llama_odd_sizes", "llama_q4_1",
                                         "mistral_window", "qwen2_bias_yarn"),
                         [](const auto& info) { return info.param; });

// Of one row and of some with padding and without; a size's two first steps (there are two places
// for steps) are launched plain.
TEST_P(GpuGraphsModelTest, decoding_steps_have_the_bits_of_the_cpu) {
  Twins twins(GetParam(), {.graph_rows_max = 8});
  for (uint32_t s = 0; s < 5; ++s) twins.add_sequence(1 + 9 * s);
  const uint64_t before = calls("cudaGraphLaunch");
  for (const uint32_t count : {1u, 3u, 5u}) twins.decode_times(count, 4);
  EXPECT_EQ(calls("cudaGraphLaunch") - before, 6u);
  twins.step(2, 3);  // no decoding step; its rows lie elsewhere than a graph leaves them
  twins.decode(3);
  twins.decode(4);
  EXPECT_EQ(calls("cudaGraphLaunch") - before, 8u);
  EXPECT_EQ(calls("cudaStreamBeginCapture"), calls("cudaGraphInstantiateWithFlags"));
  twins.expect_same_pages();
}

// A graph is for so many splits: another is captured when a sequence has grown past them.
TEST_F(GpuGraphsTest, rows_that_see_one_split_or_several_have_the_bits_of_the_cpu) {
  for (const char* const name : {"llama_mqa_llama3", "gemma3_soft_caps"}) {
    Twins twins(name, {.context_tokens_max = 1700, .graph_rows_max = 4});
    twins.add_sequence(508);
    const uint64_t before = calls("cudaGraphLaunch");
    twins.decode_times(1, 8);
    EXPECT_EQ(calls("cudaGraphLaunch") - before, 4u);
    twins.add_sequence(1300);
    twins.add_sequence(20);
    twins.decode_times(3, 4);
    EXPECT_EQ(calls("cudaGraphLaunch") - before, 6u);
    twins.expect_same_pages();
  }
}

// What a graph reads lies before the block tables, which grow: past four pages here.
TEST_F(GpuGraphsTest, longer_block_tables_move_nothing_that_a_graph_reads) {
  Twins twins("llama_q4_1", {.graph_rows_max = 1});
  twins.add_sequence(60);
  const uint64_t before = calls("cudaGraphLaunch");
  twins.decode_times(1, 8);
  EXPECT_EQ(calls("cudaGraphLaunch") - before, 6u);
  twins.expect_same_pages();
}

TEST_F(GpuGraphsTest, steps_that_are_not_for_graphs_are_launched_plain) {
  const auto expect_none = [](Twins& twins, uint32_t count) {
    const uint64_t before = calls("cudaStreamBeginCapture");
    twins.decode_times(count, 4);
    EXPECT_EQ(calls("cudaStreamBeginCapture"), before);
    twins.expect_same_pages();
  };
  {
    Twins off("llama_q4_1", {.graph_rows_max = 0});
    off.add_sequence(5);
    expect_none(off, 1);
  }
  {
    Twins too_many("llama_q4_1", {.graph_rows_max = 3});  // so two
    for (uint32_t s = 0; s < 3; ++s) too_many.add_sequence(5 + s);
    expect_none(too_many, 3);
  }
  {
    Twins in_parts("llama_q4_1",
                   {.attention_scratch_bytes = 1, .context_tokens_max = 100, .graph_rows_max = 4});
    for (uint32_t s = 0; s < 2; ++s) in_parts.add_sequence(5 + s);
    expect_none(in_parts, 2);
  }
  {
    // Scratch for the splits of three rows, of 4 heads with 16 floats and a maximum and sum each.
    Twins no_room("llama_q4_1", {.attention_scratch_bytes = 3 * 4 * 18 * sizeof(float),
                                 .context_tokens_max = 100,
                                 .graph_rows_max = 4});
    for (uint32_t s = 0; s < 3; ++s) no_room.add_sequence(5 + s);
    expect_none(no_room, 3);
  }
  {
    Twins behind_gates("llama_q4_1", {.graph_rows_max = 4}, {.by_layers = true});
    behind_gates.add_sequence(5);
    expect_none(behind_gates, 1);
  }
  {
    Twins in_tiles("llama_mqa_llama3", {.context_tokens_max = 600, .graph_rows_max = 8});
    in_tiles.add_sequence(528);
    in_tiles.share_first(7);
    expect_none(in_tiles, 8);
  }
}

// Whatever the driver refuses of it: the step is launched plain, and all that follow.
TEST_F(GpuGraphsTest, what_is_refused_ends_graphs_and_no_step) {
  for (const char* const call : {"cudaStreamBeginCapture", "cudaStreamEndCapture", "launch",
                                 "cudaGraphInstantiateWithFlags", "cudaGraphLaunch"}) {
    SCOPED_TRACE(call);
    Twins twins("llama_q4_1", {.graph_rows_max = 4});
    for (uint32_t s = 0; s < 3; ++s) twins.add_sequence(5 + s);
    twins.decode_times(3, 2);
    const uint64_t captures = calls("cudaStreamBeginCapture"), launches = calls("cudaGraphLaunch");
    emulator::SimulatedCuda::current().fail_call(call, cudaErrorMemoryAllocation,
                                                 std::string(call) == "launch" ? 7 : 0);
    twins.decode_times(3, 4);
    EXPECT_EQ(calls("cudaStreamBeginCapture") - captures, 1u);
    EXPECT_EQ(calls("cudaGraphLaunch") - launches,
              std::string(call) == "cudaGraphLaunch" ? 1u : 0u);
    EXPECT_EQ(emulator::SimulatedCuda::current().left(), "1 streams\n");
    twins.expect_same_pages();
  }
}

// A graph's kernels have the pages' address.
TEST_F(GpuGraphsTest, other_pages_take_other_graphs) {
  Twins twins("llama_q4_1", {.graph_rows_max = 1});
  twins.add_sequence(5);
  twins.decode_times(1, 4);
  Runner& runner = twins.gpu().runs.runner();
  const size_t page_bytes = runner.shape().groups[0].page_bytes();
  const HarnessSequence& sequence = twins.on_gpu(0);
  std::vector<std::byte> others(128 * page_bytes);
  std::byte* const at = others.data() + static_cast<size_t>(sequence.tables[0][0]) * page_bytes;
  std::memcpy(at, twins.gpu().runs.pages_of(sequence, 0).data(), page_bytes);
  const std::vector<std::byte> before(at, at + page_bytes);
  runner.bind_pages({others.data()});
  twins.decode(1);
  EXPECT_NE(std::memcmp(at, before.data(), page_bytes), 0);
  EXPECT_TRUE(twins.gpu().runs.pages_of(sequence, 0) == before);
}

}  // namespace
}  // namespace spillway::model
