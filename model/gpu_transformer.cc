#include "model/gpu_transformer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/block_until_done.h"
#include "kernels/cuda/loading.h"
#include "model/fingerprint.h"
#include "model/gpu_weights.h"
#include "model/step_result.h"
#include "model/tensors.h"
#include "model/weights.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

constexpr uint32_t kTileRowsMax = 65'535;            // blocks of a launch in a row's dimension
constexpr size_t kLogitFloatsMax = size_t{1} << 24;  // 64 MiB: 128 rows of 128k tokens

LogitsShape logits_shape(const ModelConfig& config, const GpuTransformerOptions& options) {
  const auto rows = std::clamp<size_t>(kLogitFloatsMax / config.vocabulary, 1,
                                       std::min(options.logit_rows_max, options.tile_rows));
  return {.vocabulary = config.vocabulary, .chunk_rows = static_cast<uint32_t>(rows)};
}

}  // namespace

Result<std::unique_ptr<GpuTransformer>> GpuTransformer::create(
    const GgufFile& file, kernels::Device& device, const GpuTransformerOptions& options) {
  CHECK(options.page_tokens % kernels::kKvBlockTokens == 0);
  CHECK(options.batch_tokens_max > 0);
  CHECK(options.batch_sequences_max > 0);
  CHECK(options.tile_rows > 0);
  CHECK(options.logit_rows_max > 0);
  auto config = read_model_config(file);
  if (!config) return config.error();
  std::unique_ptr<GpuTransformer> transformer(
      new GpuTransformer(*std::move(config), device, options));
  if (auto done = transformer->load_kernels(); !done) return done.error();
  if (auto done = transformer->load(file); !done) return done.error();
  if (auto done = transformer->set_fingerprint(file); !done) return done.error();
  return transformer;
}

GpuTransformer::GpuTransformer(ModelConfig config, kernels::Device& device,
                               const GpuTransformerOptions& options)
    : config_(std::move(config)),
      device_(device),
      options_(options),
      tile_rows_(std::min({options.tile_rows, options.batch_tokens_max, kTileRowsMax})),
      context_tokens_max_(options.context_tokens_max == 0 ? config_.context_tokens_max
                                                          : options.context_tokens_max),
      logits_(logits_shape(config_, options)),
      shape_{.vocabulary = config_.vocabulary,
             .context_tokens_max = config_.context_tokens_max,
             .groups = kv_groups(config_, options.kv_type, options.page_tokens),
             .fingerprint = {}},
      graphs_(options.stream, options.graphs, std::min(options.graph_rows_max, tile_rows_)),
      steps_{Step{{},
                  GpuResults(logits_),
                  GpuOperators(options.stream, options.take_error),
                  {},
                  nullptr},
             Step{{},
                  GpuResults(logits_),
                  GpuOperators(options.stream, options.take_error),
                  {},
                  nullptr}} {}

Result<> GpuTransformer::load_kernels() {
  int error = 0;
  device_.compute().launch([&error](kernels::Team&) { error = kernels::cuda::load_kernels(); });
  const auto loaded = device_.make_event();
  device_.compute().record(*loaded);
  kernels::block_until_done(*loaded);
  if (const Error* const failure = device_.failure()) return *failure;
  if (error == 0) return {};
  return Error{ErrorCode::kUnavailable,
               "the GPU does not take this build's kernels: CUDA error " + std::to_string(error)};
}

Result<> GpuTransformer::load(const GgufFile& file) {
  const auto tensors = find_model_tensors(file, config_);
  if (!tensors) return tensors.error();
  // The layout of packed weights is that of every level.
  Weights weights =
      load_weights(config_, *tensors, kernels::CpuLevel::kBaseline, options_.load_threads);
  for (kernels::RopeTable& rope : weights.ropes) {
    angles_.emplace_back(std::move(rope), context_tokens_max_);
  }
  auto uploaded = upload_weights(weights, device_);
  if (!uploaded) return uploaded.error();
  if (options_.products != nullptr) {
    auto reserved = options_.products->reserve(device_, product_limits(config_, tile_rows_));
    if (!reserved) return reserved.error();
  }
  const GpuForwardOptions options{.tile_rows = tile_rows_,
                                  .context_tokens_max = context_tokens_max_,
                                  .logits = logits_,
                                  .partial_bytes = options_.attention_scratch_bytes,
                                  .products = options_.products.get()};
  auto forward = GpuForward::create(config_, shape_.groups, *std::move(uploaded), device_, options);
  if (!forward) return forward.error();
  forward_ = *std::move(forward);
  return reserve_steps();
}

Result<> GpuTransformer::reserve_steps() {
  const GpuStepLimits limits{
      .rows = options_.batch_tokens_max,
      .sequences = std::min(options_.batch_sequences_max, options_.batch_tokens_max),
      .context_tokens = context_tokens_max_,
      .tile_rows = tile_rows_,
      .heads = config_.heads,
      .graph_rows = graphs_.rows_max(),
      .attention = {.blocks_wanted = options_.attention_blocks,
                    .partials_max = forward_->partials_max()}};
  for (Step& step : steps_) {
    if (auto done = step.staging.reserve(device_, forward_->groups(), angles_, limits); !done) {
      return Error{done.error().code, "no memory to lay steps out in: " + done.error().message};
    }
    // A sequence draws from one row of a step.
    if (auto done = step.results.reserve(device_, limits.rows, tile_rows_, limits.sequences);
        !done) {
      return Error{done.error().code, "no memory for a step's results: " + done.error().message};
    }
  }
  return {};
}

Result<> GpuTransformer::set_fingerprint(const GgufFile& file) {
  Digest digest;
  add_model(digest, file);
  add_layout(digest, shape_.groups);
  const auto run = [this](const std::vector<std::byte*>& bases, const StepBatch& batch,
                          StepResult& result) -> Result<> {
    bind_pages(bases);
    enqueue(batch, result);
    const auto done = device_.make_event();
    device_.compute().record(*done);
    kernels::block_until_done(*done);
    collect(batch, result);
    if (result.failure.empty()) return {};
    return Error{ErrorCode::kIo, result.failure};
  };
  if (auto added = add_arithmetic(digest, shape_, device_, run); !added) return added.error();
  // The probe has fewer rows than the library is given.
  if (options_.products != nullptr) digest.add("products of many rows by a library");
  // The probe's pages are gone; a step before bind_pages() must not write there.
  bind_pages(std::vector<std::byte*>(shape_.groups.size()));
  shape_.fingerprint = digest.hex();
  return {};
}

void GpuTransformer::enqueue(const StepBatch& batch, StepResult& result) {
  const size_t rows = shape_result(batch, result);
  CHECK(rows <= options_.batch_tokens_max);
  CHECK(batch.sequences.size() <= options_.batch_sequences_max);
  CHECK(batch.layers_there.empty() || batch.layers_there.size() == shape_.groups.size());
  CHECK(rest_ == nullptr);
  Step& step = steps_[next_];
  next_ = (next_ + 1) % steps_.size();
  CHECK(step.batch == nullptr);
  step.batch = &batch;
  step.failure.clear();
  step.operators.forget_failure();
  if (auto prepared = prepare(step, batch); !prepared) {
    step.failure = prepared.error().message;
    return;
  }
  step.staging.copy_up(device_.compute());
  if (batch.layers_there.empty()) {
    for (const GpuTile& tile : step.staging.tiles()) {
      launch_tile(step, tile);
      launch_logits(step, tile);
    }
    return;
  }
  rest_ = &step;
  rest_layer_ = 0;
  layer_takes_ = 0;
  enqueue_rest();
}

// Behind the last gate all is there: the tiles after the first do not wait.
bool GpuTransformer::enqueue_rest() {
  if (rest_ == nullptr) return false;
  Step& step = *rest_;
  const GpuTile& tile = step.staging.tiles().front();
  part_began_ = step.operators.launches();
  if (rest_layer_ == 0) {
    device_.compute().launch(
        [this, &step, &tile](kernels::Team&) { forward_->begin(step.operators, tile); });
  }
  for (bool first = true; rest_layer_ < config_.layers; first = false) {
    if (!first && !fits_behind_gates(step, layer_takes_)) return true;
    const uint64_t before = step.operators.launches();
    launch_layer_behind_gate(step, tile, rest_layer_++);
    layer_takes_ = step.operators.launches() - before;
  }
  // The logits take less than a layer, but for many rows or tiles, which wait for the layers then.
  const bool few = step.staging.tiles().size() == 1 && tile.active <= logits_.chunk_rows;
  const bool any = step.operators.launches() != part_began_;
  if (any && !(few && fits_behind_gates(step, layer_takes_))) return true;
  launch_tail(step);
  rest_ = nullptr;
  return true;
}

// Whether so many launches more fit into the part that is enqueued, with a layer's wait, which is
// two operations.
bool GpuTransformer::fits_behind_gates(const Step& step, uint64_t launches) const {
  const uint64_t enqueued = step.operators.launches() - part_began_;
  return enqueued + launches + 2 <= options_.launches_behind_gates_max;
}

// What waits for no gate any more.
void GpuTransformer::launch_tail(Step& step) {
  bool first = true;
  for (const GpuTile& tile : step.staging.tiles()) {
    if (!std::exchange(first, false)) launch_tile(step, tile);
    launch_logits(step, tile);
  }
}

Result<> GpuTransformer::prepare(Step& step, const StepBatch& batch) {
  for (const SequenceStep& sequence : batch.sequences) {
    CHECK(sequence.position + sequence.tokens.size() <= context_tokens_max_);
    for (const TokenId token : sequence.tokens) {
      CHECK(token >= 0);
      CHECK(static_cast<uint32_t>(token) < config_.vocabulary);
    }
  }
  step.staging.prepare(forward_->groups(), angles_, batch, graphs_.rows_max());
  return step.results.prepare(device_, step.staging.tiles());
}

void GpuTransformer::launch_tile(Step& step, const GpuTile& tile) {
  device_.compute().launch([this, &step, &tile](kernels::Team&) {
    const auto slot = static_cast<size_t>(&step - steps_.data());
    graphs_.run_layers(slot, tile, *forward_, step.operators);
  });
}

void GpuTransformer::launch_layer_behind_gate(Step& step, const GpuTile& tile, uint32_t layer) {
  kernels::Stream& stream = device_.compute();
  const LayerPlace place = config_.places[layer];
  stream.wait(*step.batch->layers_there[place.group], place.index + 1);
  stream.launch([this, &step, &tile, layer](kernels::Team&) {
    forward_->run_layer(step.operators, tile, layer);
  });
}

void GpuTransformer::launch_logits(Step& step, const GpuTile& tile) {
  kernels::Stream& stream = device_.compute();
  for (uint32_t first = 0; first < tile.active; first += logits_.chunk_rows) {
    stream.launch([this, &step, &tile, first](kernels::Team&) {
      forward_->run_logits(step.operators, tile, first);
    });
    stream.copy(step.results.chunk(tile, first), forward_->logits(), logits_.bytes(tile, first));
  }
}

void GpuTransformer::collect(const StepBatch& batch, StepResult& result) {
  CHECK(rest_ == nullptr);
  Step& step = steps_[oldest_];
  oldest_ = (oldest_ + 1) % steps_.size();
  CHECK(std::exchange(step.batch, nullptr) == &batch);
  result.failure = std::exchange(step.failure, {});
  if (const Error* const failure = device_.failure()) {
    result.failure = failure->message;
  } else if (step.operators.failed() != nullptr) {
    result.failure = std::string("the GPU took no ") + step.operators.failed() + ": CUDA error " +
                     std::to_string(step.operators.error());
  }
  if (!result.failure.empty()) return;
  // No sampler is to look at what came of layers that never came.
  const bool in_vain = std::any_of(batch.layers_there.begin(), batch.layers_there.end(),
                                   [](const auto* gate) { return gate->abandoned(); });
  if (!in_vain) step.results.draw(batch, step.staging.tiles(), result);
}

}  // namespace spillway::model
