#include "model/transformer.h"

#include <algorithm>

#include "model/fingerprint.h"
#include "model/step_result.h"
#include "model/tensors.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

// A team of the calling thread alone: the bits are those of any team.
class SoloTeam final : public kernels::Team {
 public:
  uint32_t index() const override { return 0; }
  uint32_t count() const override { return 1; }
  void barrier() override {}
};

}  // namespace

Result<std::unique_ptr<Transformer>> Transformer::create(const GgufFile& file,
                                                         kernels::Device& device,
                                                         const TransformerOptions& options) {
  CHECK(options.page_tokens % kernels::kKvBlockTokens == 0);
  CHECK(options.batch_tokens_max > 0);
  auto config = read_model_config(file);
  if (!config) return config.error();
  const auto tensors = find_model_tensors(file, *config);
  if (!tensors) return tensors.error();
  Weights weights = load_weights(*config, *tensors, options.level, options.threads);
  std::unique_ptr<Transformer> transformer(
      new Transformer(*std::move(config), std::move(weights), device, options));
  if (auto done = transformer->set_fingerprint(file); !done) return done.error();
  return transformer;
}

Transformer::Transformer(ModelConfig config, Weights weights, kernels::Device& device,
                         const TransformerOptions& options)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      device_(device),
      options_(options),
      shape_{.vocabulary = config_.vocabulary,
             .context_tokens_max = config_.context_tokens_max,
             .groups = kv_groups(config_, options.kv_type, options.page_tokens),
             .fingerprint = {}} {
  const ForwardOptions forward{.level = options.level,
                               .tile_rows = std::min(options.tile_rows, options.batch_tokens_max),
                               .workers_max = options.threads};
  forward_ = std::make_unique<Forward>(config_, weights_, shape_.groups, forward);
}

Result<void> Transformer::set_fingerprint(const GgufFile& file) {
  Digest digest;
  add_model(digest, file);
  add_layout(digest, shape_.groups);
  const auto run = [this](const std::vector<std::byte*>& bases, const StepBatch& batch,
                          StepResult& result) -> Result<> {
    SoloTeam team;
    forward_->bind_pages(bases);
    forward_->run(team, batch, result);
    return {};
  };
  if (auto added = add_arithmetic(digest, shape_, device_, run); !added) return added.error();
  // The probe's pages are gone; a step before bind_pages() must not write there.
  forward_->bind_pages(std::vector<std::byte*>(shape_.groups.size()));
  shape_.fingerprint = digest.hex();
  return {};
}

void Transformer::enqueue(const StepBatch& batch, StepResult& result) {
  const size_t rows = shape_result(batch, result);
  CHECK(rows <= options_.batch_tokens_max);
  kernels::Stream& stream = device_.compute();
  if (batch.layers_there.empty()) {
    stream.launch(
        [this, &batch, &result](kernels::Team& team) { forward_->run(team, batch, result); });
    return;
  }
  CHECK(batch.layers_there.size() == shape_.groups.size());
  CHECK(rows > 0);
  stream.launch(
      [this, &batch, &result](kernels::Team& team) { forward_->begin(team, batch, result); });
  for (uint32_t i = 0; i < config_.layers; ++i) {
    const LayerPlace place = config_.places[i];
    stream.wait(*batch.layers_there[place.group], place.index + 1);
    stream.launch([this, &batch, &result, i](kernels::Team& team) {
      forward_->run_layer_behind_gate(team, batch, result, i);
    });
  }
  stream.launch(
      [this, &batch, &result](kernels::Team& team) { forward_->finish(team, batch, result); });
}

}  // namespace spillway::model
