// A decoder-only transformer from a GGUF file: implements Runner (runner.h).
// enqueue() makes one launch on the device's compute stream, in which the team runs all layers.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cpu_level.h"
#include "kernels/device.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/gguf.h"
#include "model/runner.h"
#include "model/weights.h"
#include "runtime/result.h"

namespace spillway::model {

struct TransformerOptions {
  kernels::CpuLevel level{};
  kernels::KvType kv_type = kernels::KvType::kF16;
  uint32_t page_tokens = 16;         // a multiple of 16
  uint32_t batch_tokens_max = 2048;  // rows of one step
  uint32_t tile_rows = 512;          // most rows that pass the layers together; at least 1
  uint32_t threads = 1;              // most workers the device's team has; also repack the weights
};

class Transformer final : public Runner {
 public:
  // Reads description and weights; `file` is needed no longer afterwards. `device` must outlive
  // the transformer. Errors name the file and the field or tensor.
  static Result<std::unique_ptr<Transformer>> create(const GgufFile& file, kernels::Device& device,
                                                     const TransformerOptions& options);

  const RunnerShape& shape() const override { return shape_; }
  void bind_pages(std::vector<std::byte*> base) override { forward_->bind_pages(base); }
  uint32_t batch_tokens_max() const override { return options_.batch_tokens_max; }
  uint32_t rows_together_max() const override { return forward_->tile_rows(); }
  void enqueue(const StepBatch& batch, StepResult& result) override;
  void collect(const StepBatch&, StepResult&) override {}  // the team draws

  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }

 private:
  Transformer(ModelConfig config, Weights weights, kernels::Device& device,
              const TransformerOptions& options);
  Result<void> set_fingerprint(const GgufFile& file);

  ModelConfig config_;
  Weights weights_;
  kernels::Device& device_;
  TransformerOptions options_;
  RunnerShape shape_;
  std::unique_ptr<Forward> forward_;
};

}  // namespace spillway::model
