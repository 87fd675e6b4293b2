// A step behind gates on the CUDA device of the simulated runtime, which tells of an enqueue that
// would block: here that is whoever opens the gates.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/block_until_done.h"
#include "kernels/cuda/cuda_device.h"
#include "model/gpu_transformer.h"
#include "tests/emulator/simulated_cuda.h"
#include "tests/model/tiny_models.h"

namespace spillway::model {
namespace {

// A prompt's step on pages of its own, whose gates are shut, or there are none.
struct GatedStep {
  GatedStep(kernels::Device& device, const RunnerShape& shape, std::span<const TokenId> tokens,
            uint32_t first_page, bool gated) {
    SequenceStep& sequence = batch.sequences.emplace_back();
    sequence.tokens = tokens;
    for (size_t g = 0; g < shape.groups.size(); ++g) {
      auto& table = tables.emplace_back();
      for (uint32_t at = 0; at < tokens.size(); at += shape.groups[g].page_tokens) {
        table.push_back(kernels::PageId{first_page + static_cast<uint32_t>(table.size())});
      }
      if (gated) gates.push_back(device.make_gate());
    }
    for (const auto& table : tables) sequence.tables.push_back(table);
    for (const auto& gate : gates) batch.layers_there.push_back(gate.get());
    SampleRequest all;
    all.row = static_cast<uint32_t>(tokens.size()) - 1;
    all.top_logprobs = shape.vocabulary;
    sequence.samples.push_back(all);
  }

  std::vector<std::vector<kernels::PageId>> tables;
  std::vector<std::unique_ptr<kernels::Gate>> gates;
  StepBatch batch;
  StepResult result;
};

// As the engine does it, in whose place gates open while a part of the step is awaited.
void run(kernels::Device& device, GpuTransformer& model, GatedStep& step, uint32_t& parts) {
  const auto done = device.make_event();
  uint32_t level = 0;
  model.enqueue(step.batch, step.result);
  do {
    ++parts;
    device.compute().record(*done);
    while (!step.gates.empty() && !done->done()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++level;
      for (const auto& gate : step.gates) gate->raise(level);
    }
    kernels::block_until_done(*done);
  } while (model.enqueue_rest());
  model.collect(step.batch, step.result);
}

TEST(GpuGates, no_step_behind_shut_gates_blocks_who_enqueues_it) {
  const TinyModel file("gemma3_soft_caps");
  // Less than the model's layers take together, and more than one of them does.
  emulator::SimulatedCuda cuda({.threads = true, .behind_a_word_max = 45});
  const auto device = kernels::make_cuda_device({}).value();
  const auto make = [&](uint32_t launches) {
    return GpuTransformer::create(
               file.file, *device,
               {.stream = device->native(device->compute()), .launches_behind_gates_max = launches})
        .value();
  };
  std::vector<std::vector<TokenLogprob>> rows;
  uint32_t parts[3] = {};
  for (const uint32_t i : {0u, 1u, 2u}) {
    const auto model = make(i < 2 ? 1 : 900);
    std::vector<kernels::DeviceMemory> memory;
    std::vector<std::byte*> bases;
    for (const kernels::KvGroupLayout& group : model->shape().groups) {
      memory.push_back(device->allocate(4 * group.page_bytes()).value());
      bases.push_back(memory.back().data);
    }
    model->bind_pages(bases);
    GatedStep step(*device, model->shape(), std::span(file.tokens).first(20), 1, i > 0);
    run(*device, *model, step, parts[i]);
    EXPECT_EQ(step.result.failure, "");
    rows.emplace_back();
    for (const TokenLogprob& one : step.result.samples[0][0].top) rows.back().push_back(one);
    const std::vector<std::string> misuse = cuda.take_misuse();
    if (i < 2) EXPECT_EQ(misuse, std::vector<std::string>{});
    // In one part it is too much, which shows that the limit above is one.
    if (i == 2) EXPECT_FALSE(misuse.empty());
  }
  EXPECT_EQ(parts[0], 1u);
  EXPECT_GT(parts[1], 2u);
  EXPECT_EQ(parts[2], 1u);
  ASSERT_EQ(rows[0].size(), rows[1].size());
  for (size_t t = 0; t < rows[0].size(); ++t) {
    EXPECT_EQ(rows[0][t].token, rows[1][t].token);
    EXPECT_EQ(rows[0][t].logprob, rows[1][t].logprob);
  }
}

}  // namespace
}  // namespace spillway::model
