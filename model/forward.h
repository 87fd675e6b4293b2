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

// What a rank of a divided model (division.h) does of the pass; by default all of it.
struct ForwardPart {
  bool embeds = true;        // else the residual comes from another rank
  bool draws = true;         // its last layer is the model's
  uint32_t first_token = 0;  // of its rows of the embedding
  uint32_t vocabulary = 0;   // the whole model's; 0: the config's
  bool stamps = true;        // where the batch asks for them
};

struct ForwardOptions {
  kernels::CpuLevel level{};
  uint32_t tile_rows = 512;  // Forward::tile_rows(), at most
  uint32_t workers_max = 1;
  ForwardPart part = {};
};

// Owns the scratch memory: one step at a time. Holds references to its arguments.
class Forward {
 public:
  Forward(const ModelConfig& config, const Weights& weights,
          const std::vector<kernels::KvGroupLayout>& layouts, const ForwardOptions& options);

  // Rows of a tile, fewer than `wanted` where the model is so wide that its scratch would be large.
  static uint32_t tile_rows_for(const ModelConfig& config, uint32_t wanted);

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

  // The pass of a rank, in launches between which the ranks' partial sums are added up. For each
  // tile: begin() or next_tile(), after which residual() is to be summed (or filled, where the rank
  // does not embed); then for each layer attention_half() and mlp_half(), after each of which
  // update() is; end_layers(); and for the rows that are drawn compute_logits(), then draw() by one
  // rank.
  void next_tile(kernels::Team& team, const StepBatch& batch, StepResult& result);
  void attention_half(kernels::Team& team, uint32_t index);
  void mlp_half(kernels::Team& team, uint32_t index);
  void end_layers(kernels::Team& team);
  // Of `rows` active rows from `first` on, at most logit_rows().
  void compute_logits(kernels::Team& team, uint32_t first, uint32_t rows);
  // Draws from these rows' logits (row, whole vocabulary), which it changes.
  void draw(kernels::Team& team, const StepBatch& batch, StepResult& result, uint32_t first,
            uint32_t rows, float* logits);
  uint32_t logit_rows() const { return logit_rows_; }
  float* residual() { return residual_.data(); }  // (row, embedding)
  float* update() { return update_.data(); }      // (row, embedding)
  float* logits() { return logits_.data(); }      // (row, vocabulary of the config)

 private:
  void run_layers(kernels::Team& team, const StepBatch& batch, StepResult& result);
  void run_layer(kernels::Team& team, uint32_t index);
  bool is_in_vain(kernels::Team& team, const StepBatch& batch);
  void embed(kernels::Share rows);
  void stamp(const kernels::Team& team, const StepBatch& batch, StepResult& result,
             uint32_t place) const;
  void attend(kernels::Team& team, uint32_t layer);
  void place_heads(const LayerWeights& layer, const kernels::RopeTable& rope, const float* angles,
                   uint32_t row);
  bool is_last(uint32_t index) const { return part_.draws && index + 1 == config_.layers; }
  // Rows that go on behind a layer's attention.
  uint32_t rows_behind(uint32_t index) const;
  void keep_active_rows();
  void project_attention(kernels::Team& team, const LayerWeights& layer, uint32_t rows);
  void add_attention(kernels::Team& team, const LayerWeights& layer, uint32_t rows);
  void run_mlp(kernels::Team& team, const LayerWeights& layer, uint32_t rows);
  void add_mlp(kernels::Team& team, uint32_t index);
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
  const ForwardPart part_;
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
