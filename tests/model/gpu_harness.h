// Runs sequences on the transformer of a GPU, over memory that host and GPU both reach.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>

#include "model/gpu_transformer.h"
#include "tests/kernels/cuda/stream_at_once.h"
#include "tests/model/runner_harness.h"

namespace spillway::model {

// What is unlike its default in a GPU's transformer.
struct GpuSetting {
  uint32_t tile_rows = 512;
  uint32_t logit_rows_max = 256;
  size_t attention_scratch_bytes = 64 << 20;
  uint32_t attention_blocks = 264;
  uint32_t batch_sequences_max = 256;
  uint32_t context_tokens_max = 0;
  uint32_t graph_rows_max = 0;
  // Null: no graphs.
  std::unique_ptr<kernels::cuda::GraphMaker> (*make_graphs)(CUstream_st* stream) = nullptr;
  // Null: our own kernels compute all products.
  std::shared_ptr<kernels::cuda::LibraryProducts> (*make_products)(CUstream_st* stream) = nullptr;
};

// So that what a TestDevice's launches enqueue has run when they return, as all else of it has.
inline void finish_launches(kernels::Device& device, kernels::cuda::StreamAtOnce& stream) {
  static_cast<TestDevice&>(device).compute().after_launch = [&stream] {
    EXPECT_EQ(stream.finish(), 0);
  };
}

class GpuHarness {
 public:
  explicit GpuHarness(const GgufFile& file, const HarnessOptions& options = {},
                      const GpuSetting& setting = {})
      : runs([&](kernels::Device& device) { return make(file, device, options, setting); },
             options) {}

  kernels::cuda::StreamAtOnce stream;
  std::unique_ptr<kernels::cuda::GraphMaker> graphs;
  RunnerHarness runs;

 private:
  std::unique_ptr<Runner> make(const GgufFile& file, kernels::Device& device,
                               const HarnessOptions& options, const GpuSetting& setting) {
    finish_launches(device, stream);
    if (setting.make_graphs != nullptr) graphs = setting.make_graphs(stream.get());
    std::shared_ptr<kernels::cuda::LibraryProducts> products;
    if (setting.make_products != nullptr) products = setting.make_products(stream.get());
    auto runner =
        GpuTransformer::create(file, device,
                               {.stream = stream.get(),
                                .kv_type = options.kv_type,
                                .page_tokens = options.page_tokens,
                                .context_tokens_max = setting.context_tokens_max,
                                .batch_tokens_max = 8192,
                                .batch_sequences_max = setting.batch_sequences_max,
                                .tile_rows = setting.tile_rows,
                                .logit_rows_max = setting.logit_rows_max,
                                .attention_scratch_bytes = setting.attention_scratch_bytes,
                                .attention_blocks = setting.attention_blocks,
                                .graphs = graphs.get(),
                                .products = products,
                                .graph_rows_max = setting.graph_rows_max});
    if (!runner) std::fprintf(stderr, "%s\n", runner.error().message.c_str());
    CHECK(runner);
    return *std::move(runner);
  }
};

inline void skip_without_fma() {
  if (kernels::available_cpu_levels().back() == kernels::CpuLevel::kBaseline) {
    GTEST_SKIP() << "the twin needs FMA";
  }
}

inline void expect_same(const StepResult& got, const StepResult& expected) {
  EXPECT_EQ(got.failure, "");
  ASSERT_EQ(got.samples.size(), expected.samples.size());
  for (size_t s = 0; s < got.samples.size(); ++s) {
    ASSERT_EQ(got.samples[s].size(), expected.samples[s].size());
    for (size_t i = 0; i < got.samples[s].size(); ++i) {
      const SampleResult& a = got.samples[s][i];
      const SampleResult& b = expected.samples[s][i];
      SCOPED_TRACE(testing::Message() << "sequence " << s << ", sample " << i);
      EXPECT_EQ(a.token, b.token);
      EXPECT_EQ(std::bit_cast<uint32_t>(a.logprob), std::bit_cast<uint32_t>(b.logprob));
      EXPECT_EQ(a.rank, b.rank);
      ASSERT_EQ(a.top.size(), b.top.size());
      for (size_t t = 0; t < a.top.size(); ++t) {
        EXPECT_EQ(a.top[t].token, b.top[t].token);
        EXPECT_EQ(std::bit_cast<uint32_t>(a.top[t].logprob),
                  std::bit_cast<uint32_t>(b.top[t].logprob));
      }
    }
  }
}

}  // namespace spillway::model
