// Runs sequences on the transformer of a GPU, over memory that host and GPU both reach.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <memory>

#include "model/gpu_transformer.h"
#include "tests/kernels/cuda/stream_at_once.h"
#include "tests/model/runner_harness.h"

namespace spillway::model {

// What is unlike its default in a GPU's transformer.
struct GpuSetting {
  uint32_t tile_rows = 512;
  uint32_t logit_rows_max = 256;
  size_t attention_scratch_bytes = 64 << 20;
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
  RunnerHarness runs;

 private:
  std::unique_ptr<Runner> make(const GgufFile& file, kernels::Device& device,
                               const HarnessOptions& options, const GpuSetting& setting) {
    finish_launches(device, stream);
    auto runner =
        GpuTransformer::create(file, device,
                               {.stream = stream.get(),
                                .kv_type = options.kv_type,
                                .page_tokens = options.page_tokens,
                                .batch_tokens_max = 8192,
                                .tile_rows = setting.tile_rows,
                                .logit_rows_max = setting.logit_rows_max,
                                .attention_scratch_bytes = setting.attention_scratch_bytes});
    if (!runner) std::fprintf(stderr, "%s\n", runner.error().message.c_str());
    CHECK(runner);
    return *std::move(runner);
  }
};

}  // namespace spillway::model
