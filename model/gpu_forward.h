// The forward pass of a tile on a GPU: which operators run, in which order, over which memory. The
// bits are those of forward.h's at the CPU's levels with FMA.
//
// A layer is about 19 launches. Where no norm stands between, an update is added to the residual by
// the norm that reads it next.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention_scaling.h"
#include "kernels/cuda/library_products.h"
#include "kernels/cuda/operators.h"
#include "kernels/device.h"
#include "model/config.h"
#include "model/gpu_operators.h"
#include "model/gpu_tile.h"
#include "model/gpu_weights.h"
#include "model/step_tile.h"
#include "runtime/result.h"

namespace spillway::model {

struct GpuForwardOptions {
  uint32_t tile_rows = 512;
  uint32_t context_tokens_max = 0;  // no position is past this
  LogitsShape logits;
  // Scratch of attention, for queries with splits of their own: more than fit run one part after
  // the other.
  size_t partial_bytes = 64 << 20;
  // For products of many rows; null: our kernels compute all. Reserved for what the model has
  // (product_limits()).
  kernels::cuda::LibraryProducts* products = nullptr;
};

// The most that a model's products by the library have.
kernels::cuda::ProductLimits product_limits(const ModelConfig& config, uint32_t tile_rows);

// Owns weights and scratch memory: one tile at a time. What it enqueues runs on one stream, in
// order. All but the constructor and bind_pages() is called where launches run.
class GpuForward {
 public:
  // Holds on to `config` and `layouts`. Fails where the device has too little memory.
  static Result<std::unique_ptr<GpuForward>> create(
      const ModelConfig& config, const std::vector<kernels::KvGroupLayout>& layouts,
      GpuWeights weights, kernels::Device& device, const GpuForwardOptions& options);

  void bind_pages(const std::vector<std::byte*>& base);
  std::span<const GroupPages> groups() const { return groups_; }
  // (query, split) that the scratch of attention takes, of all heads: no tile's plan needs more.
  size_t partials_max() const { return partials_max_; }

  // In this order: begin(), run_layer() of each, run_logits() for each chunk of active rows.
  // Behind a gate only our own kernels run: a library's are loaded when they are first launched,
  // which may wait for all that runs (kernels/cuda/loading.h).
  enum class Products : uint8_t { kOurs, kAny };
  void begin(GpuOperators& run, const GpuTile& tile, Products by = Products::kOurs);
  void run_layer(GpuOperators& run, const GpuTile& tile, uint32_t index);
  void run_layers(GpuOperators& run, const GpuTile& tile);  // begin(), and all of them
  // Of places [first, first + a chunk's rows): logits, and what is drawn from those that do not
  // come down. What it leaves is laid out as LogitsShape says.
  void run_logits(GpuOperators& run, const GpuTile& tile, uint32_t first);
  const std::byte* logits() const { return scratch_.logits; }

  // Where the rows of the tile lie now: those that go on may have been brought together.
  struct Rows {
    uint32_t count = 0;
    float *residual = nullptr, *normed = nullptr, *query = nullptr, *attended = nullptr;
    bool has_update = false;  // of update, not added to the residual yet
    Products by = Products::kOurs;
  };
  const Rows& rows() const { return rows_; }
  // For run_logits(), where the kernels of run_layers() were enqueued without it: they left these.
  void set_rows(const Rows& rows) { rows_ = rows; }

 private:
  // Carved from one block of device memory.
  struct Scratch {
    float *residual, *normed, *update;  // (row, embedding)
    float *query, *attended;            // (row, query_width)
    float *key, *value;                 // (row, kv_width)
    float *gate, *up;                   // (row, feed_forward)
    int8_t* values;                     // (row, widest input)
    float *scales, *scaled_sums, *half_scaled_sums;
    float *partial_sums, *partial_outs;
    std::byte* draw;  // of draw_rows_ rows
    std::byte* logits;
  };
  class Carver;

  GpuForward(const ModelConfig& config, const std::vector<kernels::KvGroupLayout>& layouts,
             GpuWeights weights, const GpuForwardOptions& options);
  void carve(Carver& carver);

  void attend(GpuOperators& run, const GpuTile& tile, uint32_t index);
  void place_heads(GpuOperators& run, const GpuLayerWeights& layer, uint32_t group,
                   const float* angles);
  void run_attention(GpuOperators& run, const GpuTileGroup& tile, const LayerPlace& place);
  void keep_active_rows(GpuOperators& run, const GpuTile& tile);
  void finish_attention(GpuOperators& run, const GpuLayerWeights& layer);
  void run_mlp(GpuOperators& run, const GpuLayerWeights& layer);

  // Of a chunk's rows [whole, count), the first of which has the tile's place `place`.
  struct DrawnRows {
    uint32_t whole = 0;
    uint32_t count = 0;
    uint32_t place = 0;
  };
  void draw(GpuOperators& run, const GpuTile& tile, const DrawnRows& rows);

  // normed = norm(residual), the residual's update added first.
  void norm(GpuOperators& run, const float* weight);
  // What follows a product into update.
  void end_update(GpuOperators& run, const float* post_norm);
  void add_bias(GpuOperators& run, float* x, const float* bias, uint32_t width);
  // Whether a library's products, and not our kernels, multiply `count` rows by it.
  bool by_library(const kernels::cuda::DeviceMatrix& w, uint32_t count) const;
  // Rounds `count` rows of x to int8, if one of the matrices wants them so.
  void quantize(GpuOperators& run, const float* x, uint32_t count,
                std::initializer_list<const kernels::cuda::DeviceMatrix*> readers);
  // y = x W^T, x having been rounded if need be.
  void product(GpuOperators& run, const kernels::cuda::DeviceMatrix& w, const float* x,
               uint32_t count, float* y);
  kernels::cuda::DeviceActivations activations(uint32_t count, uint32_t inputs) const;

  const ModelConfig& config_;
  const GpuWeights weights_;
  const GpuForwardOptions options_;
  const kernels::AttentionScaling scaling_;
  const size_t partials_max_;
  const uint32_t draw_rows_;  // that are drawn from at once
  std::vector<GroupPages> groups_;
  kernels::DeviceMemory memory_;
  Scratch scratch_{};
  Rows rows_;
};

}  // namespace spillway::model
