// The forward pass of a step as a team runs it: every worker calls run(), and they meet at barriers
// between phases. Rows go through row operators in even shares; matrix columns and attention work
// are divided by the kernels. No result depends on the division.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/activations.h"
#include "kernels/attention.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/share.h"
#include "model/config.h"
#include "model/row_buffer.h"
#include "model/runner.h"
#include "model/sampler.h"
#include "model/step_tile.h"
#include "model/weights.h"

namespace spillway::model {

struct ForwardOptions {
  kernels::CpuLevel level{};
  uint32_t tile_rows = 512;  // Forward::tile_rows(), at most
  uint32_t workers_max = 1;
};

// Owns the scratch memory: one step at a time. Holds references to its arguments.
class Forward {
 public:
  Forward(const ModelConfig& config, const Weights& weights,
          const std::vector<kernels::KvGroupLayout>& layouts, const ForwardOptions& options);

  void bind_pages(const std::vector<std::byte*>& base);
  // Rows that go through all layers together: fewer than asked for where a model is very wide.
  uint32_t tile_rows() const { return tile_rows_; }

  // Called by every worker of a launch with the same arguments. `result` has its final shape.
  // REQUIRES: pages are bound; team.count() <= workers_max.
  void run(kernels::Team& team, const StepBatch& batch, StepResult& result);

  // The same in parts, each a launch of its own, for a step in which a layer may have to wait for
  // what it reads: begin(), run_layer_behind_gate() of each layer in order, finish(). Only the
  // first tile's layers run one by one: behind the last one, all is there. Once a gate of the batch
  // is abandoned nothing more is computed, and nothing is drawn: no sampler sees what was never
  // there.
  void begin(kernels::Team& team, const StepBatch& batch, StepResult& result);
  void run_layer_behind_gate(kernels::Team& team, const StepBatch& batch, StepResult& result,
                             uint32_t index);
  void finish(kernels::Team& team, const StepBatch& batch, StepResult& result);

 private:
  void next_tile(kernels::Team& team, const StepBatch& batch, StepResult& result);
  void run_layers(kernels::Team& team, const StepBatch& batch, StepResult& result);
  void run_layer(kernels::Team& team, uint32_t index);
  bool is_in_vain(kernels::Team& team, const StepBatch& batch);
  void embed(kernels::Share rows);
  static void stamp(const kernels::Team& team, const StepBatch& batch, StepResult& result,
                    uint32_t place);
  void attend(kernels::Team& team, uint32_t layer);
  void place_heads(const LayerWeights& layer, const kernels::RopeTable& rope, const float* angles,
                   uint32_t row);
  void keep_active_rows();
  void finish_attention(kernels::Team& team, const LayerWeights& layer, uint32_t rows);
  void run_mlp(kernels::Team& team, const LayerWeights& layer, uint32_t rows);
  void sample(kernels::Team& team, const StepBatch& batch, StepResult& result);
  // Adds `update` to the residual of the rows, through the post norm where there is one.
  void add_update(kernels::Share rows, const std::vector<float>& post_norm);
  // The rows' norm, and its int8 form for the matrices that follow.
  void norm_rows(kernels::Share rows, const float* residual, const std::vector<float>& weight,
                 const kernels::Activations& to);
  void quantize(kernels::Share rows, const kernels::Activations& to);

  const ModelConfig& config_;
  const Weights& weights_;
  const kernels::CpuLevel level_;
  const kernels::RowOps& ops_;
  const uint32_t tile_rows_;
  std::vector<GroupPages> groups_;
  std::vector<std::unique_ptr<kernels::AttentionPlan>> plans_;  // (group)

  // Written by worker 0 between barriers.
  std::optional<StepTiler> tiler_;
  StepTile tile_;
  bool has_tile_ = false;
  bool in_vain_ = false;

  // Scratch, tile_rows rows each.
  RowBuffer residual_, normed_, update_;  // (embedding)
  RowBuffer query_, attended_;            // (query_width)
  RowBuffer key_, value_;                 // (kv_width)
  RowBuffer gate_, up_;                   // (feed_forward)
  std::vector<RowBuffer> angles_;         // (group): (2 * rope dims)
  const uint32_t logit_rows_;
  RowBuffer logits_;  // logit_rows_ rows: (vocabulary)
  kernels::ActivationBuffer activations_;
  std::vector<SampleScratch> sample_scratch_;  // (worker)
};

}  // namespace spillway::model
