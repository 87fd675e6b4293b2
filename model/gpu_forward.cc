#include "model/gpu_forward.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/packed_format.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

using kernels::cuda::DeviceMatrix;

bool is_quantized(const DeviceMatrix& matrix) {
  return kernels::packed_format(matrix.type).is_quantized();
}

uint32_t widest_input(const ModelConfig& config) {
  return std::max({config.embedding, config.query_width(), config.feed_forward});
}

// Room for all that a tile needs, but no more than is wanted; one query of the longest context at
// least.
size_t partials_for(const ModelConfig& config, const GpuForwardOptions& options) {
  const size_t least = options.context_tokens_max / kernels::kAttentionSplitTokens + 1;
  const size_t partial_bytes = config.heads * (size_t{config.head_dim} + 2) * sizeof(float);
  return std::clamp(options.partial_bytes / partial_bytes, least, least * options.tile_rows);
}

// 128 MiB: 61 rows of 128k tokens. More are drawn from one part after the other.
uint32_t draw_rows(const LogitsShape& logits) {
  constexpr size_t kScratchBytes = size_t{128} << 20;
  const size_t fit = kScratchBytes / kernels::cuda::sample_row_scratch_bytes(logits.vocabulary);
  return static_cast<uint32_t>(std::clamp<size_t>(fit, 1, logits.chunk_rows));
}

}  // namespace

// Each matrix has the embedding for one of its sides.
kernels::cuda::ProductLimits product_limits(const ModelConfig& config, uint32_t tile_rows) {
  const uint32_t other =
      std::max({config.vocabulary, config.feed_forward, config.query_width(), config.kv_width()});
  return {.rows = tile_rows,
          .inputs = widest_input(config),
          .elements = size_t{config.embedding} * other};
}

// Gives each array its place; without memory it counts.
class GpuForward::Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  template <class T>
  void take(T*& array, size_t count) {
    if (memory_ != nullptr) array = reinterpret_cast<T*>(memory_ + used_);
    used_ += (count * sizeof(T) + 255) / 256 * 256;
  }
  size_t bytes() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

GpuForward::GpuForward(const ModelConfig& config,
                       const std::vector<kernels::KvGroupLayout>& layouts, GpuWeights weights,
                       const GpuForwardOptions& options)
    : config_(config),
      weights_(std::move(weights)),
      options_(options),
      scaling_(kernels::attention_scaling({.heads = config.heads,
                                           .scale = config.query_scale,
                                           .soft_cap = config.attention_soft_cap})),
      partials_max_(partials_for(config, options)),
      draw_rows_(draw_rows(options.logits)) {
  for (const kernels::KvGroupLayout& layout : layouts) {
    groups_.push_back({.layout = &layout, .base = nullptr});
  }
}

Result<std::unique_ptr<GpuForward>> GpuForward::create(
    const ModelConfig& config, const std::vector<kernels::KvGroupLayout>& layouts,
    GpuWeights weights, kernels::Device& device, const GpuForwardOptions& options) {
  std::unique_ptr<GpuForward> forward(new GpuForward(config, layouts, std::move(weights), options));
  Carver counter(nullptr);
  forward->carve(counter);
  auto memory = device.allocate(counter.bytes());
  if (!memory) {
    return Error{memory.error().code, "a step takes " + std::to_string(counter.bytes() >> 20) +
                                          " MiB of the device's memory beside weights and pages: " +
                                          memory.error().message};
  }
  forward->memory_ = *std::move(memory);
  Carver carver(forward->memory_.data);
  forward->carve(carver);
  return forward;
}

void GpuForward::carve(Carver& carver) {
  const size_t rows = options_.tile_rows;
  const size_t widest = rows * widest_input(config_);
  const size_t blocks = (widest + kernels::kBlockInputs - 1) / kernels::kBlockInputs;
  for (float** array : {&scratch_.residual, &scratch_.normed, &scratch_.update}) {
    carver.take(*array, rows * config_.embedding);
  }
  for (float** array : {&scratch_.query, &scratch_.attended}) {
    carver.take(*array, rows * config_.query_width());
  }
  for (float** array : {&scratch_.key, &scratch_.value}) {
    carver.take(*array, rows * config_.kv_width());
  }
  for (float** array : {&scratch_.gate, &scratch_.up}) {
    carver.take(*array, rows * config_.feed_forward);
  }
  carver.take(scratch_.values, widest);
  carver.take(scratch_.scales, blocks);
  carver.take(scratch_.scaled_sums, blocks);
  carver.take(scratch_.half_scaled_sums, 2 * blocks);
  const size_t partials = partials_max_ * config_.heads;
  carver.take(scratch_.partial_sums, 2 * partials);
  carver.take(scratch_.partial_outs, partials * config_.head_dim);
  const LogitsShape& logits = options_.logits;
  carver.take(scratch_.draw, kernels::cuda::sample_scratch_bytes(draw_rows_, logits.vocabulary));
  carver.take(scratch_.logits, logits.drawn_bytes() + logits.chunk_rows * logits.row_bytes());
}

void GpuForward::bind_pages(const std::vector<std::byte*>& base) {
  CHECK(base.size() == groups_.size());
  for (size_t g = 0; g < base.size(); ++g) groups_[g].base = base[g];
}

void GpuForward::begin(GpuOperators& run, const GpuTile& tile, Products by) {
  CHECK(tile.rows <= options_.tile_rows);
  rows_ = {.count = tile.rows,
           .residual = scratch_.residual,
           .normed = scratch_.normed,
           .query = scratch_.query,
           .attended = scratch_.attended,
           .by = by};
  run.run("embedding", kernels::cuda::embedding,
          {.w = weights_.embedding,
           .tokens = tile.tokens,
           .y = rows_.residual,
           .y_stride = config_.embedding,
           .rows = tile.rows,
           .scale = config_.embedding_scale});
}

void GpuForward::run_layers(GpuOperators& run, const GpuTile& tile) {
  begin(run, tile, Products::kAny);
  for (uint32_t i = 0; i < config_.layers; ++i) run_layer(run, tile, i);
}

void GpuForward::run_layer(GpuOperators& run, const GpuTile& tile, uint32_t index) {
  attend(run, tile, index);
  // After the last layer's attention only the rows whose logits are wanted go on.
  if (index + 1 == config_.layers) {
    if (tile.kept == 0) return;
    keep_active_rows(run, tile);
  }
  finish_attention(run, weights_.layers[index]);
  run_mlp(run, weights_.layers[index]);
}

void GpuForward::attend(GpuOperators& run, const GpuTile& tile, uint32_t index) {
  const GpuLayerWeights& layer = weights_.layers[index];
  const LayerPlace& place = config_.places[index];
  const GpuTileGroup& group = tile.groups[place.group];
  norm(run, layer.attention_norm);
  quantize(run, rows_.normed, rows_.count, {&layer.query, &layer.key, &layer.value});
  product(run, layer.query, rows_.normed, rows_.count, rows_.query);
  product(run, layer.key, rows_.normed, rows_.count, scratch_.key);
  product(run, layer.value, rows_.normed, rows_.count, scratch_.value);
  place_heads(run, layer, place.group, group.angles);
  run.run("write_kv", kernels::cuda::write_kv,
          {.kv = {*groups_[place.group].layout, groups_[place.group].base},
           .layer = place.index,
           .sequences = group.sequences,
           .sequence_count = tile.sequences,
           .pages_max = group.pages_max,
           .k = scratch_.key,
           .v = scratch_.value,
           .stride = config_.kv_width()});
  const bool needed = index + 1 < config_.layers || tile.kept > 0;
  if (needed) run_attention(run, group, place);
}

// Query and key heads: bias, norm, rotation.
void GpuForward::place_heads(GpuOperators& run, const GpuLayerWeights& layer, uint32_t group,
                             const float* angles) {
  add_bias(run, rows_.query, layer.query_bias, config_.query_width());
  add_bias(run, scratch_.key, layer.key_bias, config_.kv_width());
  add_bias(run, scratch_.value, layer.value_bias, config_.kv_width());
  kernels::cuda::RopeArgs rope{
      .angles = angles,
      .rows = rows_.count,
      .head_dim = config_.head_dim,
      .dims = config_.groups[group].rope.dims,
      .in_halves = config_.architecture->rope_order == kernels::RopeOrder::kHalves,
      .eps = config_.norm_epsilon};
  rope.x = rows_.query;
  rope.x_stride = config_.query_width();
  rope.weight = layer.query_norm;
  rope.heads = config_.heads;
  run.run("rope", kernels::cuda::rope, rope);
  rope.x = scratch_.key;
  rope.x_stride = config_.kv_width();
  rope.weight = layer.key_norm;
  rope.heads = config_.kv_heads;
  run.run("rope", kernels::cuda::rope, rope);
}

void GpuForward::run_attention(GpuOperators& run, const GpuTileGroup& tile,
                               const LayerPlace& place) {
  for (const GpuAttention& part : tile.attention) {
    const size_t partials = size_t{part.query_count - part.whole_queries} * part.splits_max;
    CHECK(partials <= partials_max_);
    run.run("attention", kernels::cuda::tiled_attention,
            {.rows = {.kv = {*groups_[place.group].layout, groups_[place.group].base},
                      .scaling = scaling_,
                      .heads = config_.heads,
                      .layer = place.index,
                      .queries = part.queries,
                      .query_count = part.query_count,
                      .splits_max = part.splits_max,
                      .q = rows_.query,
                      .out = rows_.attended,
                      .q_stride = config_.query_width(),
                      .out_stride = config_.query_width(),
                      .partial_sums = scratch_.partial_sums,
                      .partial_outs = scratch_.partial_outs},
             .tiles = part.tiles,
             .tile_count = part.tile_count,
             .tiled_queries = part.tiled_queries,
             .whole_queries = part.whole_queries});
  }
}

// Brings the active rows of residual and attended to other buffers, whose contents are over.
void GpuForward::keep_active_rows(GpuOperators& run, const GpuTile& tile) {
  rows_.count = tile.kept;
  if (tile.active_rows == nullptr) return;
  CHECK(!rows_.has_update);  // added by this layer's first norm
  const auto gather = [&](float*& from, float*& to, uint32_t width) {
    run.run("gather_rows", kernels::cuda::gather_rows,
            {.x = from,
             .from = tile.active_rows,
             .y = to,
             .x_stride = width,
             .y_stride = width,
             .rows = tile.kept,
             .n = width});
    std::swap(from, to);
  };
  gather(rows_.residual, rows_.normed, config_.embedding);
  gather(rows_.attended, rows_.query, config_.query_width());
}

void GpuForward::finish_attention(GpuOperators& run, const GpuLayerWeights& layer) {
  quantize(run, rows_.attended, rows_.count, {&layer.attention_output});
  product(run, layer.attention_output, rows_.attended, rows_.count, scratch_.update);
  add_bias(run, scratch_.update, layer.attention_output_bias, config_.embedding);
  end_update(run, layer.attention_post_norm);
}

void GpuForward::run_mlp(GpuOperators& run, const GpuLayerWeights& layer) {
  const uint32_t width = config_.feed_forward;
  norm(run, layer.mlp_norm);
  quantize(run, rows_.normed, rows_.count, {&layer.gate, &layer.up});
  product(run, layer.gate, rows_.normed, rows_.count, scratch_.gate);
  product(run, layer.up, rows_.normed, rows_.count, scratch_.up);
  const bool gelu = config_.architecture->activation == Activation::kGelu;
  run.run("gated", kernels::cuda::gated,
          {.y = scratch_.gate,
           .gate = scratch_.gate,
           .up = scratch_.up,
           .y_stride = width,
           .stride = width,
           .rows = rows_.count,
           .n = width,
           .kind = gelu ? kernels::cuda::Gate::kGelu : kernels::cuda::Gate::kSilu});
  quantize(run, scratch_.gate, rows_.count, {&layer.down});
  product(run, layer.down, scratch_.gate, rows_.count, scratch_.update);
  end_update(run, layer.mlp_post_norm);
}

void GpuForward::run_logits(GpuOperators& run, const GpuTile& tile, uint32_t first) {
  const LogitsShape& shape = options_.logits;
  const uint32_t count = shape.rows_of(tile, first);
  const size_t at = size_t{first} * config_.embedding;
  run.run("rms_norm", kernels::cuda::rms_norm,
          {.y = rows_.normed,
           .x = rows_.residual + at,
           .added = scratch_.update + at,
           .weight = weights_.output_norm,
           .y_stride = config_.embedding,
           .x_stride = config_.embedding,
           .added_stride = config_.embedding,
           .rows = count,
           .n = config_.embedding,
           .eps = config_.norm_epsilon});
  auto* logits = reinterpret_cast<float*>(scratch_.logits + shape.drawn_bytes());
  quantize(run, rows_.normed, count, {&weights_.output});
  product(run, weights_.output, rows_.normed, count, logits);
  if (config_.final_soft_cap > 0) {
    run.run("soft_cap", kernels::cuda::soft_cap,
            {.x = logits,
             .stride = shape.vocabulary,
             .rows = count,
             .n = shape.vocabulary,
             .cap = config_.final_soft_cap});
  }
  const uint32_t whole = shape.whole_of(tile, first);
  draw(run, tile, {.whole = whole, .count = count, .place = first + whole});
}

void GpuForward::draw(GpuOperators& run, const GpuTile& tile, const DrawnRows& rows) {
  const LogitsShape& shape = options_.logits;
  auto* const reports = reinterpret_cast<kernels::cuda::DeviceReport*>(scratch_.logits);
  auto* const tokens = reinterpret_cast<int32_t*>(scratch_.logits + shape.tokens_at());
  const auto* const logits = reinterpret_cast<const float*>(scratch_.logits + shape.drawn_bytes());
  for (uint32_t row = rows.whole; row < rows.count; row += draw_rows_) {
    run.run("sample", kernels::cuda::sample,
            {.logits = logits + size_t{row} * shape.vocabulary,
             .stride = shape.vocabulary,
             .rows = std::min(draw_rows_, rows.count - row),
             .n = shape.vocabulary,
             .draws = tile.draws + (rows.place + row - rows.whole - tile.whole),
             .tokens = tokens + row,
             .reports = reports + row,
             .scratch = scratch_.draw});
  }
}

void GpuForward::norm(GpuOperators& run, const float* weight) {
  run.run("rms_norm", kernels::cuda::rms_norm,
          {.y = rows_.normed,
           .x = rows_.residual,
           .added = std::exchange(rows_.has_update, false) ? scratch_.update : nullptr,
           .weight = weight,
           .y_stride = config_.embedding,
           .x_stride = config_.embedding,
           .added_stride = config_.embedding,
           .rows = rows_.count,
           .n = config_.embedding,
           .eps = config_.norm_epsilon});
}

void GpuForward::end_update(GpuOperators& run, const float* post_norm) {
  rows_.has_update = true;
  if (post_norm == nullptr) return;
  run.run("rms_norm", kernels::cuda::rms_norm,
          {.y = scratch_.update,
           .x = scratch_.update,
           .weight = post_norm,
           .y_stride = config_.embedding,
           .x_stride = config_.embedding,
           .rows = rows_.count,
           .n = config_.embedding,
           .eps = config_.norm_epsilon});
}

void GpuForward::add_bias(GpuOperators& run, float* x, const float* bias, uint32_t width) {
  if (bias == nullptr) return;
  run.run("add_bias", kernels::cuda::add_bias,
          {.x = x, .bias = bias, .stride = width, .rows = rows_.count, .n = width});
}

bool GpuForward::by_library(const DeviceMatrix& w, uint32_t count) const {
  return options_.products != nullptr && rows_.by == Products::kAny &&
         options_.products->takes(w, count);
}

void GpuForward::quantize(GpuOperators& run, const float* x, uint32_t count,
                          std::initializer_list<const DeviceMatrix*> readers) {
  const auto reads_int8 = [&](const DeviceMatrix* w) {
    return is_quantized(*w) && !by_library(*w, count);
  };
  if (std::none_of(readers.begin(), readers.end(), reads_int8)) return;
  const uint32_t inputs = (*readers.begin())->inputs;
  run.run("quantize", kernels::cuda::quantize,
          {.x = x, .x_stride = inputs, .to = activations(count, inputs)});
}

void GpuForward::product(GpuOperators& run, const DeviceMatrix& w, const float* x, uint32_t count,
                         float* y) {
  if (by_library(w, count)) {
    kernels::cuda::LibraryProducts& products = *options_.products;
    run.run_by("product by cuBLASLt", products.launches_max(w), [&](CUstream_st*) {
      return products.enqueue({.w = w, .x = x, .y = y, .rows = count});
    });
    return;
  }
  if (is_quantized(w)) {
    run.run("matmul", kernels::cuda::matmul,
            {.w = w, .x = activations(count, w.inputs), .y = y, .y_stride = w.outputs});
    return;
  }
  run.run("matmul_floats", kernels::cuda::matmul_floats,
          {.w = w, .x = x, .y = y, .x_stride = w.inputs, .y_stride = w.outputs, .rows = count});
}

kernels::cuda::DeviceActivations GpuForward::activations(uint32_t count, uint32_t inputs) const {
  return {.rows = count,
          .inputs = inputs,
          .values = scratch_.values,
          .scales = scratch_.scales,
          .scaled_sums = scratch_.scaled_sums,
          .half_scaled_sums = scratch_.half_scaled_sums};
}

}  // namespace spillway::model
