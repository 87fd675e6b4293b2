#include "model/forward.h"

#include <algorithm>
#include <chrono>

#include "kernels/matmul.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

using kernels::Activations;
using kernels::Share;
using kernels::share_of;
using kernels::Team;

// Rows of logits at a time: enough to read the output matrix once for a whole decode batch, few
// enough that a prompt's log-probabilities over a large vocabulary take little memory.
constexpr uint32_t kLogitRows = 32;
constexpr size_t kLogitFloatsMax = size_t{1} << 24;    // 64 MiB
constexpr size_t kScratchFloatsMax = size_t{1} << 26;  // 256 MiB; 512 rows of a model of 8 billion

size_t widest_input(const ModelConfig& config) {
  return std::max({config.embedding, config.query_width(), config.feed_forward});
}

uint32_t logit_rows_for(uint32_t vocabulary, uint32_t tile_rows) {
  return static_cast<uint32_t>(
      std::clamp<size_t>(kLogitFloatsMax / vocabulary, 1, std::min(kLogitRows, tile_rows)));
}

ForwardPart with_vocabulary(ForwardPart part, const ModelConfig& config) {
  if (part.vocabulary == 0) part.vocabulary = config.vocabulary;
  return part;
}

}  // namespace

uint32_t Forward::tile_rows_for(const ModelConfig& config, uint32_t wanted) {
  const size_t row = size_t{3} * config.embedding + size_t{2} * config.query_width() +
                     size_t{2} * config.kv_width() + size_t{2} * config.feed_forward;
  return static_cast<uint32_t>(std::clamp<size_t>(kScratchFloatsMax / row, 1, wanted));
}

Forward::Forward(const ModelConfig& config, const Weights& weights,
                 const std::vector<kernels::KvGroupLayout>& layouts, const ForwardOptions& options)
    : config_(config),
      weights_(weights),
      level_(options.level),
      ops_(kernels::row_ops(options.level)),
      part_(with_vocabulary(options.part, config)),
      tile_rows_(tile_rows_for(config, options.tile_rows)),
      residual_(tile_rows_, config.embedding),
      normed_(tile_rows_, config.embedding),
      update_(tile_rows_, config.embedding),
      query_(tile_rows_, config.query_width()),
      attended_(tile_rows_, config.query_width()),
      key_(tile_rows_, config.kv_width()),
      value_(tile_rows_, config.kv_width()),
      gate_(tile_rows_, config.feed_forward),
      up_(tile_rows_, config.feed_forward),
      logit_rows_(logit_rows_for(part_.vocabulary, tile_rows_)),
      logits_(logit_rows_, config.vocabulary),
      activations_(options.level, size_t{tile_rows_} * widest_input(config)),
      sample_scratch_(options.workers_max) {
  const kernels::AttentionShape shape{
      .heads = config.heads, .scale = config.query_scale, .soft_cap = config.attention_soft_cap};
  for (size_t g = 0; g < layouts.size(); ++g) {
    groups_.push_back({.layout = &layouts[g], .base = nullptr});
    plans_.push_back(std::make_unique<kernels::AttentionPlan>(level_, layouts[g], shape));
    angles_.emplace_back(tile_rows_, rope_angle_count(weights.ropes[g]));
  }
}

void Forward::bind_pages(const std::vector<std::byte*>& base) {
  CHECK(base.size() == groups_.size());
  for (size_t g = 0; g < base.size(); ++g) groups_[g].base = base[g];
}

void Forward::run(Team& team, const StepBatch& batch, StepResult& result) {
  begin(team, batch, result);
  run_layers(team, batch, result);
  finish(team, batch, result);
}

// By one worker, who may be a little ahead of the others.
void Forward::stamp(const Team& team, const StepBatch& batch, StepResult& result,
                    uint32_t place) const {
  if (!batch.stamped || !part_.stamps || team.index() != 0) return;
  result.stamps.push_back({.place = place, .at = std::chrono::steady_clock::now()});
}

void Forward::begin(Team& team, const StepBatch& batch, StepResult& result) {
  CHECK(team.count() <= sample_scratch_.size());
  if (team.index() == 0) tiler_.emplace(groups_, batch, tile_rows_);
  next_tile(team, batch, result);
}

void Forward::next_tile(Team& team, const StepBatch& batch, StepResult& result) {
  if (team.index() == 0) {
    has_tile_ = tiler_->next(tile_);
    for (size_t g = 0; has_tile_ && g < plans_.size(); ++g) {
      plans_[g]->prepare(tile_.sequences[g], team.count());
    }
  }
  team.barrier();
  if (!has_tile_) return;
  stamp(team, batch, result, 0);
  embed(share_of(team, tile_.rows()));
}

void Forward::run_layers(Team& team, const StepBatch& batch, StepResult& result) {
  for (uint32_t i = 0; i < config_.layers && has_tile_; ++i) {
    run_layer(team, i);
    stamp(team, batch, result, i + 1);
  }
}

void Forward::run_layer(Team& team, uint32_t index) {
  const LayerWeights& layer = weights_.layers[index];
  attend(team, index);
  const uint32_t rows = rows_behind(index);
  if (rows == 0) return;
  project_attention(team, layer, rows);
  add_attention(team, layer, rows);
  run_mlp(team, layer, rows);
  add_mlp(team, index);
  if (is_last(index)) team.barrier();  // logits take rows in other shares
}

// After the last layer's attention only the rows whose logits are wanted go on.
uint32_t Forward::rows_behind(uint32_t index) const {
  return is_last(index) ? static_cast<uint32_t>(tile_.active_rows.size()) : tile_.rows();
}

void Forward::attention_half(Team& team, uint32_t index) {
  if (index > 0) add_mlp(team, index - 1);
  attend(team, index);
  const uint32_t rows = rows_behind(index);
  if (rows > 0) project_attention(team, weights_.layers[index], rows);
}

void Forward::mlp_half(Team& team, uint32_t index) {
  const LayerWeights& layer = weights_.layers[index];
  const uint32_t rows = rows_behind(index);
  add_attention(team, layer, rows);
  run_mlp(team, layer, rows);
}

void Forward::end_layers(Team& team) { add_mlp(team, config_.layers - 1); }

// All workers get the same answer, though a gate may be abandoned at any time.
bool Forward::is_in_vain(Team& team, const StepBatch& batch) {
  if (batch.layers_there.empty()) return false;
  if (team.index() == 0) {
    in_vain_ = std::any_of(batch.layers_there.begin(), batch.layers_there.end(),
                           [](const kernels::Gate* gate) { return gate->abandoned(); });
  }
  team.barrier();
  return in_vain_;
}

void Forward::run_layer_behind_gate(Team& team, const StepBatch& batch, StepResult& result,
                                    uint32_t index) {
  if (is_in_vain(team, batch)) return;
  run_layer(team, index);
  stamp(team, batch, result, index + 1);
}

void Forward::finish(Team& team, const StepBatch& batch, StepResult& result) {
  if (is_in_vain(team, batch)) return;
  while (has_tile_) {
    if (!tile_.active_rows.empty()) {
      sample(team, batch, result);
      stamp(team, batch, result, StepStamp::kSampled);
    }
    team.barrier();
    next_tile(team, batch, result);
    run_layers(team, batch, result);
  }
}

void Forward::embed(Share rows) {
  const size_t width = config_.embedding;
  for (uint32_t r = rows.first; r < rows.end; ++r) {
    const TokenId token = tile_.tokens[r];
    CHECK(token >= 0);
    CHECK(static_cast<uint32_t>(token) < part_.vocabulary);
    for (size_t g = 0; g < groups_.size(); ++g) {
      rope_angles(weights_.ropes[g], tile_.positions[r], angles_[g].row(r));
    }
    if (!part_.embeds) continue;
    float* row = residual_.row(r);
    const uint32_t own = static_cast<uint32_t>(token) - part_.first_token;  // wraps below it
    if (own >= config_.vocabulary) {  // another rank has it: the sum of all ranks' rows is its row
      std::fill_n(row, width, 0.0f);
      continue;
    }
    weights_.embedding.dequantize(own, row);
    if (config_.embedding_scale != 1) ops_.scale(row, config_.embedding_scale, width);
  }
}

void Forward::quantize(Share rows, const Activations& to) {
  // Widths that are not whole blocks occur with float matrices only, which read the rows as they
  // are.
  if (to.inputs % kernels::kBlockInputs == 0) quantize_rows(to, rows.first, rows.end);
}

void Forward::norm_rows(Share rows, const float* residual, const std::vector<float>& weight,
                        const Activations& to) {
  const size_t width = config_.embedding;
  for (uint32_t r = rows.first; r < rows.end; ++r) {
    ops_.rms_norm(normed_.row(r), residual + r * width, weight.data(), width, config_.norm_epsilon);
  }
  quantize(rows, to);
}

// One row's query and key heads: bias, norm, rotation.
void Forward::place_heads(const LayerWeights& layer, const kernels::RopeTable& rope,
                          const float* angles, uint32_t row) {
  const size_t dim = config_.head_dim;
  float* q = query_.row(row);
  float* k = key_.row(row);
  float* v = value_.row(row);
  if (!layer.query_bias.empty()) {
    ops_.add(q, layer.query_bias.data(), config_.query_width());
    ops_.add(k, layer.key_bias.data(), config_.kv_width());
    ops_.add(v, layer.value_bias.data(), config_.kv_width());
  }
  if (!layer.query_norm.empty()) {
    for (uint32_t h = 0; h < config_.heads; ++h) {
      float* head = q + h * dim;
      ops_.rms_norm(head, head, layer.query_norm.data(), dim, config_.norm_epsilon);
    }
    for (uint32_t h = 0; h < config_.kv_heads; ++h) {
      float* head = k + h * dim;
      ops_.rms_norm(head, head, layer.key_norm.data(), dim, config_.norm_epsilon);
    }
  }
  ops_.rope(q, config_.heads, dim, rope, angles);
  ops_.rope(k, config_.kv_heads, dim, rope, angles);
}

// From the residual to attended_; ends with a barrier.
void Forward::attend(Team& team, uint32_t index) {
  const LayerWeights& layer = weights_.layers[index];
  const LayerPlace place = config_.places[index];
  const kernels::RopeTable& rope = weights_.ropes[place.group];
  const uint32_t rows = tile_.rows();
  const Share share = share_of(team, rows);
  const size_t q_width = config_.query_width(), kv_width = config_.kv_width();

  const Activations normed =
      activations_.view(normed_.data(), config_.embedding, rows, config_.embedding);
  norm_rows(share, residual_.data(), layer.attention_norm, normed);
  team.barrier();
  matmul(team, layer.query, normed, query_.data(), q_width);
  matmul(team, layer.key, normed, key_.data(), kv_width);
  matmul(team, layer.value, normed, value_.data(), kv_width);
  team.barrier();
  for (uint32_t r = share.first; r < share.end; ++r) {
    place_heads(layer, rope, angles_[place.group].row(r), r);
  }
  team.barrier();
  write_kv(level_, team, tile_.sequences[place.group], place.index,
           {.k = key_.data(), .v = value_.data(), .stride = kv_width});
  team.barrier();
  const bool needed = !is_last(index) || !tile_.active_rows.empty();
  if (!needed) return;
  plans_[place.group]->run(
      team, place.index,
      {.q = query_.data(), .out = attended_.data(), .q_stride = q_width, .out_stride = q_width});
  team.barrier();
}

// Moves the active rows of residual_ and attended_ to the front, by one worker.
void Forward::keep_active_rows() {
  for (size_t to = 0; to < tile_.active_rows.size(); ++to) {
    const size_t from = tile_.active_rows[to];  // never before `to`
    if (from == to) continue;
    std::copy_n(residual_.row(from), residual_.width(), residual_.row(to));
    std::copy_n(attended_.row(from), attended_.width(), attended_.row(to));
  }
}

void Forward::add_update(Share rows, const std::vector<float>& post_norm) {
  const size_t width = config_.embedding;
  for (uint32_t r = rows.first; r < rows.end; ++r) {
    float* update = update_.row(r);
    if (!post_norm.empty()) {
      ops_.rms_norm(update, update, post_norm.data(), width, config_.norm_epsilon);
    }
    ops_.add(residual_.row(r), update, width);
  }
}

// The output projection, into update_; ends with a barrier.
void Forward::project_attention(Team& team, const LayerWeights& layer, uint32_t rows) {
  if (rows < tile_.rows()) {
    if (team.index() == 0) keep_active_rows();
    team.barrier();
  }
  const Activations attended =
      activations_.view(attended_.data(), config_.query_width(), rows, config_.query_width());
  quantize(share_of(team, rows), attended);
  team.barrier();
  matmul(team, layer.attention_output, attended, update_.data(), config_.embedding);
  team.barrier();
}

// To the residual of this worker's share of rows; no barrier.
void Forward::add_attention(Team& team, const LayerWeights& layer, uint32_t rows) {
  const Share share = share_of(team, rows);
  if (!layer.attention_output_bias.empty()) {
    for (uint32_t r = share.first; r < share.end; ++r) {
      ops_.add(update_.row(r), layer.attention_output_bias.data(), config_.embedding);
    }
  }
  add_update(share, layer.attention_post_norm);
}

// The gated MLP, into update_; begins with this worker's share of rows, and ends with a barrier.
void Forward::run_mlp(Team& team, const LayerWeights& layer, uint32_t rows) {
  const Share share = share_of(team, rows);
  const size_t width = config_.embedding, mlp = config_.feed_forward;
  const Activations normed =
      activations_.view(normed_.data(), config_.embedding, rows, config_.embedding);
  norm_rows(share, residual_.data(), layer.mlp_norm, normed);
  team.barrier();
  matmul(team, layer.gate, normed, gate_.data(), mlp);
  matmul(team, layer.up, normed, up_.data(), mlp);
  team.barrier();
  const auto gated =
      config_.architecture->activation == Activation::kGelu ? ops_.gelu_mul : ops_.silu_mul;
  for (uint32_t r = share.first; r < share.end; ++r) {
    gated(gate_.row(r), gate_.row(r), up_.row(r), mlp);
  }
  const Activations hidden = activations_.view(gate_.data(), mlp, rows, config_.feed_forward);
  quantize(share, hidden);
  team.barrier();
  matmul(team, layer.down, hidden, update_.data(), width);
  team.barrier();
}

// As add_attention().
void Forward::add_mlp(Team& team, uint32_t index) {
  add_update(share_of(team, rows_behind(index)), weights_.layers[index].mlp_post_norm);
}

void Forward::sample(Team& team, const StepBatch& batch, StepResult& result) {
  const auto active = static_cast<uint32_t>(tile_.active_rows.size());
  for (uint32_t first = 0; first < active; first += logit_rows_) {
    const uint32_t rows = std::min(logit_rows_, active - first);
    compute_logits(team, first, rows);
    draw(team, batch, result, first, rows, logits_.data());
  }
}

// Ends with a barrier.
void Forward::compute_logits(Team& team, uint32_t first, uint32_t rows) {
  const size_t width = config_.embedding;
  const Activations normed = activations_.view(normed_.data(), width, rows, config_.embedding);
  norm_rows(share_of(team, rows), residual_.row(first), weights_.output_norm, normed);
  team.barrier();
  matmul(team, weights_.output_matrix(), normed, logits_.data(), config_.vocabulary);
  team.barrier();
}

// The worker that capped a row draws all samples of that row. (The next rows' logits are written
// after their norm's barrier, which waits for this.)
void Forward::draw(Team& team, const StepBatch& batch, StepResult& result, uint32_t first,
                   uint32_t rows, float* logits) {
  const size_t vocabulary = part_.vocabulary;
  if (config_.final_soft_cap > 0) {
    for (uint32_t r = team.index(); r < rows; r += team.count()) {
      ops_.soft_cap(logits + r * vocabulary, config_.final_soft_cap, vocabulary);
    }
  }
  auto wanted = std::lower_bound(
      tile_.samples.begin(), tile_.samples.end(), first,
      [](const SampleRow& sample, uint32_t active) { return sample.active < active; });
  for (; wanted != tile_.samples.end() && wanted->active < first + rows; ++wanted) {
    const uint32_t row = wanted->active - first;
    if (row % team.count() != team.index()) continue;
    const SampleRequest& request = batch.sequences[wanted->sequence].samples[wanted->sample];
    result.samples[wanted->sequence][wanted->sample] =
        sample_row(std::span(logits + row * vocabulary, vocabulary), request, wanted->position,
                   sample_scratch_[team.index()]);
  }
}

}  // namespace spillway::model
