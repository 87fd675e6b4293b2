// Runs sequences on a Runner without an engine: its pages lie scattered, freed ones and those
// behind a window are filled with NaN, and steps are cut as a test likes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu_level.h"
#include "model/divided_transformer.h"
#include "model/gguf.h"
#include "model/transformer.h"
#include "tests/model/test_device.h"

namespace spillway::model {

struct HarnessOptions {
  kernels::CpuLevel level = kernels::available_cpu_levels().back();
  kernels::KvType kv_type = kernels::KvType::kF16;
  uint32_t threads = 1;
  uint32_t tile_rows = 512;
  uint32_t page_tokens = 16;
  uint32_t pages = 128;  // of each group
  // What a step finds in its pages comes layer by layer, when it waits for the layer: NaN before.
  bool by_layers = false;
  uint32_t abandon_at = UINT32_MAX;  // by layers: the wait at which the rest fails to come
  bool keep_behind_windows = false;  // pages, which sequences may share
  Division division = {};            // of a Transformer, over so many devices
};

// A sequence's pages in each group.
struct HarnessSequence {
  std::vector<std::vector<kernels::PageId>> tables;
  uint32_t position = 0;
};

// One sequence's part of a step.
struct HarnessPart {
  HarnessSequence* sequence = nullptr;
  std::span<const TokenId> tokens;
  std::vector<SampleRequest> samples;
};

struct HarnessStep {
  StepBatch batch;
  StepResult result;
  std::vector<std::vector<std::vector<kernels::PageId>>> tables;  // (part, group): as they were
  std::vector<std::unique_ptr<kernels::Gate>> gates;              // (group), where by layers
};

class RunnerHarness {
 public:
  // On a Transformer, whole or divided. CHECKs that the model loads.
  RunnerHarness(const GgufFile& file, const HarnessOptions& options);
  // On the runner that `make` makes, which has the options of its own kind.
  using Make = std::function<std::unique_ptr<Runner>(kernels::Device& device)>;
  RunnerHarness(const Make& make, const HarnessOptions& options);

  Runner& runner() { return *runner_; }
  uint32_t vocabulary() const { return runner_->shape().vocabulary; }
  HarnessSequence new_sequence();
  // The same text in pages of its own, with the bytes that another harness computed.
  HarnessSequence adopt(const RunnerHarness& from, const HarnessSequence& sequence);
  // Gives the pages back, filled with NaN.
  void release(HarnessSequence& sequence);
  // The bytes of its pages, one after the other.
  std::vector<std::byte> pages_of(const HarnessSequence& sequence, size_t group) const;
  StepResult step(std::vector<HarnessPart> parts, bool stamped = false);
  // The same in two calls. What the parts point to stays until the second.
  std::unique_ptr<HarnessStep> enqueue(std::vector<HarnessPart> parts, bool stamped = false);
  StepResult collect(std::unique_ptr<HarnessStep> step);

  // The log-probabilities (token, vocabulary) of one sequence, computed in chunks of the given
  // sizes; the last size repeats.
  std::vector<float> log_probabilities(std::span<const TokenId> tokens,
                                       std::vector<uint32_t> chunks);
  // Asks for the whole row of log-probabilities of a token of a step.
  SampleRequest whole_row(uint32_t row) const;
  // That row in order of token id.
  std::vector<float> row_of(const SampleResult& result) const;

 private:
  std::unique_ptr<Runner> make_transformer(const GgufFile& file, kernels::Device& device,
                                           const HarnessOptions& options);
  void grow(HarnessSequence& sequence, uint32_t tokens);
  std::byte* page(size_t group, kernels::PageId page) const;
  void enqueue_by_layers(HarnessStep& step);
  void poison(size_t group, kernels::PageId page);
  void release_behind_window(HarnessSequence& sequence);

  const bool by_layers_;
  const uint32_t abandon_at_;
  const bool keep_behind_windows_;
  TestDevice device_;
  std::vector<std::unique_ptr<TestDevice>> other_devices_;  // (rank - 1)
  std::unique_ptr<Runner> runner_;
  std::vector<kernels::DeviceMemory> memory_;
  std::vector<std::vector<kernels::PageId>> free_;  // (group)
};

}  // namespace spillway::model
