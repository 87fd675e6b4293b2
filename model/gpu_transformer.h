// A decoder-only transformer from a GGUF file on a GPU: implements Runner (runner.h) with the
// operators of kernels/cuda/operators.h, over a device of the generic kind (kernels/device.h).
//
// A step: one copy up from pinned memory brings all that it needs, the tiles pass the layers, and
// for each chunk of logits one copy down brings what is wanted of it. (A decoding step's layers may
// be one launch: gpu_graphs.h.) Nothing waits for the device, and no step allocates of it, but for
// one that wants more whole rows of logits than it may have sequences. Tokens are drawn on the
// device where it can (device_sampling.h); collect() draws the others, and makes results of what
// came down.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "kernels/cuda/library_products.h"
#include "kernels/device.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/gpu_forward.h"
#include "model/gpu_graphs.h"
#include "model/gpu_operators.h"
#include "model/gpu_results.h"
#include "model/gpu_staging.h"
#include "model/runner.h"
#include "runtime/result.h"

namespace spillway::model {

struct GpuTransformerOptions {
  CUstream_st* stream = nullptr;  // the compute stream of the device, as its operators take it
  // A GPU's CudaDevice::take_error_of(): called, where launches run, for an operator that was
  // refused. It ends the device, as any call does that enqueues and is refused, and so all steps
  // that are under way. Empty, for devices whose operators leave nothing undone: the one step
  // fails.
  GpuOperators::TakeError take_error = {};
  kernels::KvType kv_type = kernels::KvType::kF16;
  uint32_t page_tokens = 16;           // a multiple of 16
  uint32_t context_tokens_max = 0;     // of a sequence; 0: what the model was trained for
  uint32_t batch_tokens_max = 2048;    // rows of one step
  uint32_t batch_sequences_max = 256;  // sequences of one step
  uint32_t tile_rows = 512;            // most rows that pass the layers together; at least 1
  uint32_t logit_rows_max = 256;       // rows of logits at once; fewer for a large vocabulary
  size_t attention_scratch_bytes = 64 << 20;
  // Of threads, that attention is to fill: two for each SM. A prompt is cut by splits below that.
  uint32_t attention_blocks = 264;
  // A stream of CUDA's holds about 1,000 operations behind a wait, and then blocks who enqueues. Of
  // a step behind gates no more than so many are enqueued before others have run, or one layer.
  uint32_t launches_behind_gates_max = 900;
  uint32_t load_threads = 1;                    // repack the weights
  kernels::cuda::GraphMaker* graphs = nullptr;  // of `stream`, as its device has it; null: none
  // Products of many rows by a library, on `stream`: a row's bits hang on its step then, and pages
  // have another fingerprint. Null: our kernels compute all. Shared with who made it.
  std::shared_ptr<kernels::cuda::LibraryProducts> products = {};
  uint32_t graph_rows_max = 64;  // of a decoding step that is launched as a graph; 0: none is
};

// Engine thread. At most two steps are enqueued and not collected: while one runs, the next can be
// laid out.
class GpuTransformer final : public Runner {
 public:
  // Reads description and weights, and waits until they are on the device; `file` is needed no
  // longer afterwards. `device` must outlive the transformer. Errors name the file and the field or
  // tensor, or tell what memory is missing.
  static Result<std::unique_ptr<GpuTransformer>> create(const GgufFile& file,
                                                        kernels::Device& device,
                                                        const GpuTransformerOptions& options);

  const RunnerShape& shape() const override { return shape_; }
  void bind_pages(std::vector<std::byte*> base) override {
    graphs_.clear();
    forward_->bind_pages(base);
  }
  uint32_t batch_tokens_max() const override { return options_.batch_tokens_max; }
  uint32_t rows_together_max() const override { return tile_rows_; }
  void enqueue(const StepBatch& batch, StepResult& result) override;
  // The next layers of a step behind gates, as many as a stream takes; then its logits.
  bool enqueue_rest() override;
  // Draws. The device's failure is the result's, and so is that of an operator that was refused.
  void collect(const StepBatch& batch, StepResult& result) override;

 private:
  // A step from enqueue() to collect().
  struct Step {
    GpuStaging staging;
    GpuResults results;
    GpuOperators operators;
    std::string failure;               // of what was to be done before it could be enqueued
    const StepBatch* batch = nullptr;  // null: there is none
  };

  GpuTransformer(ModelConfig config, kernels::Device& device, const GpuTransformerOptions& options);
  Result<> load_kernels();
  Result<> load(const GgufFile& file);
  Result<> reserve_steps();
  Result<> set_fingerprint(const GgufFile& file);
  Result<> prepare(Step& step, const StepBatch& batch);
  void launch_tile(Step& step, const GpuTile& tile);
  bool fits_behind_gates(const Step& step, uint64_t launches) const;
  void launch_layer_behind_gate(Step& step, const GpuTile& tile, uint32_t layer);
  void launch_tail(Step& step);
  void launch_logits(Step& step, const GpuTile& tile);

  const ModelConfig config_;
  kernels::Device& device_;
  const GpuTransformerOptions options_;
  const uint32_t tile_rows_;
  const uint32_t context_tokens_max_;
  const LogitsShape logits_;
  RunnerShape shape_;
  std::vector<AngleCache> angles_;  // (group)
  std::unique_ptr<GpuForward> forward_;
  GpuGraphs graphs_;
  std::array<Step, 2> steps_;
  Step* rest_ = nullptr;      // behind gates, not enqueued whole
  uint32_t rest_layer_ = 0;   // its first that is not
  uint64_t part_began_ = 0;   // launches before what was enqueued of it last
  uint64_t layer_takes_ = 0;  // launches of a layer
  size_t next_ = 0;           // to be enqueued
  size_t oldest_ = 0;         // to be collected
};

}  // namespace spillway::model
