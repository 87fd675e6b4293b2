#include "model/divided_transformer.h"

#include <algorithm>
#include <utility>

#include "kernels/block_until_done.h"
#include "kernels/cpu_stream.h"
#include "model/fingerprint.h"
#include "model/step_result.h"
#include "model/tensor_shards.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

// A step is enqueued whole: rows of one whose operations leave half of a rank's stream free.
uint32_t rows_that_fit(const ModelConfig& config, const Division& division, uint32_t tile_rows) {
  // A tile's phases: two a layer, with what each rank is told and waits for between, and logits of
  // 32 rows at a time.
  const uint32_t phases = config.layers + tile_rows / 16 + 8;
  const uint32_t tiles =
      kernels::CpuStream::kOperationsMax / 2 / (phases * (4 * division.tensor + 8));
  return std::max(tiles, 1u) * tile_rows;
}

}  // namespace

Result<std::unique_ptr<DividedTransformer>> DividedTransformer::create(
    const GgufFile& file, std::span<kernels::Device* const> devices, const Division& division,
    const TransformerOptions& options) {
  CHECK(devices.size() == division.ranks());
  CHECK(options.page_tokens % kernels::kKvBlockTokens == 0);
  CHECK(options.batch_tokens_max > 0);
  auto config = read_model_config(file);
  if (!config) return config.error();
  const auto tensors = find_model_tensors(file, *config);
  if (!tensors) return tensors.error();
  const auto shares = divide(*config, division_blocks(*tensors), division);
  if (!shares) return shares.error();
  std::unique_ptr<DividedTransformer> made(
      new DividedTransformer(*std::move(config), division, options));
  for (const RankShare& share : *shares) {
    auto& rank = made->ranks_.emplace_back(std::make_unique<Rank>());
    rank->share = share;
    rank->config = config_of_rank(made->config_, share);
    const TensorShards shards = tensors_of_rank(*tensors, made->config_, share);
    rank->weights = load_weights(rank->config, shards.tensors, options.level,
                                 options.threads * division.ranks());
  }
  made->lay_out_pages();
  made->make_pass(devices);
  if (auto done = made->set_fingerprint(file); !done) return done.error();
  return made;
}

DividedTransformer::DividedTransformer(ModelConfig config, const Division& division,
                                       const TransformerOptions& options)
    : config_(std::move(config)),
      division_(division),
      options_(options),
      shape_{.vocabulary = config_.vocabulary,
             .context_tokens_max = config_.context_tokens_max,
             .groups = kv_groups(config_, options.kv_type, options.page_tokens),
             .pages_by_layer = false,
             .fingerprint = {}} {}

// A rank without layers of a group has no bytes in its pages.
void DividedTransformer::lay_out_pages() {
  std::vector<size_t> bytes(shape_.groups.size());
  for (auto& rank : ranks_) {
    rank->layouts = kv_groups(rank->config, options_.kv_type, options_.page_tokens);
    rank->offsets = bytes;
    for (size_t g = 0; g < bytes.size(); ++g) bytes[g] += rank->layouts[g].own_bytes();
  }
  for (size_t g = 0; g < bytes.size(); ++g) {
    shape_.groups[g].stride_bytes = bytes[g];
    for (auto& rank : ranks_) rank->layouts[g].stride_bytes = bytes[g];
  }
}

void DividedTransformer::make_pass(std::span<kernels::Device* const> devices) {
  // As many rows for all as the narrowest scratch holds.
  uint32_t tile_rows = std::min(options_.tile_rows, options_.batch_tokens_max);
  for (const auto& rank : ranks_) {
    tile_rows = std::min(tile_rows, Forward::tile_rows_for(rank->config, tile_rows));
  }
  batch_tokens_max_ =
      std::min(options_.batch_tokens_max, rows_that_fit(config_, division_, tile_rows));
  std::vector<PassRank> parts;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = *ranks_[r];
    const ForwardOptions forward{.level = options_.level,
                                 .tile_rows = tile_rows,
                                 .workers_max = options_.threads,
                                 .part = {.embeds = rank.share.embeds,
                                          .draws = rank.share.draws,
                                          .first_token = rank.share.vocabulary.first,
                                          .vocabulary = config_.vocabulary,
                                          .stamps = false}};
    rank.forward = std::make_unique<Forward>(rank.config, rank.weights, rank.layouts, forward);
    parts.push_back({.device = devices[r],
                     .forward = rank.forward.get(),
                     .layers = rank.config.layers,
                     .vocabulary = rank.config.vocabulary});
  }
  pass_ = std::make_unique<DividedPass>(
      PassShape{
          .division = division_, .embedding = config_.embedding, .vocabulary = config_.vocabulary},
      std::move(parts));
  device_ = kernels::make_device_set({devices.begin(), devices.end()}, pass_->home());
}

void DividedTransformer::bind_pages(std::vector<std::byte*> base) {
  CHECK(base.size() == shape_.groups.size());
  for (auto& rank : ranks_) {
    std::vector<std::byte*> own = base;
    for (size_t g = 0; g < own.size(); ++g) {
      if (own[g] != nullptr) own[g] += rank->offsets[g];
    }
    rank->forward->bind_pages(own);
  }
  for (size_t g = 0; g < base.size(); ++g) {
    std::vector<kernels::PagePart> parts;
    for (const auto& rank : ranks_) {
      parts.push_back({.offset = rank->offsets[g], .bytes = rank->layouts[g].own_bytes()});
    }
    if (base[g] != nullptr) {
      device_->part_pages(base[g], shape_.groups[g].page_bytes(), std::move(parts));
    }
  }
}

std::span<std::byte> DividedTransformer::part_of_page(uint32_t rank, uint32_t group,
                                                      std::span<std::byte> page) const {
  CHECK(page.size() == shape_.groups[group].page_bytes());
  const Rank& of = *ranks_[rank];
  return page.subspan(of.offsets[group], of.layouts[group].own_bytes());
}

Result<void> DividedTransformer::set_fingerprint(const GgufFile& file) {
  Digest digest;
  add_model(digest, file);
  digest.add(uint64_t{division_.tensor});
  digest.add(uint64_t{division_.pipeline});
  for (const auto& rank : ranks_) add_layout(digest, rank->layouts);
  const std::unique_ptr<kernels::Event> ended = device_->make_event();
  const auto run = [&](const std::vector<std::byte*>& base, const StepBatch& batch,
                       StepResult& result) -> Result<> {
    bind_pages(base);
    pass_->enqueue(shape_.groups, batch, result);
    device_->compute().record(*ended);
    kernels::block_until_done(*ended);
    return {};
  };
  if (auto added = add_arithmetic(digest, shape_, *device_, run); !added) return added.error();
  // The probe's pages are gone; a step before bind_pages() must not write there.
  bind_pages(std::vector<std::byte*>(shape_.groups.size()));
  shape_.fingerprint = digest.hex();
  return {};
}

void DividedTransformer::enqueue(const StepBatch& batch, StepResult& result) {
  CHECK(batch.layers_there.empty());
  CHECK(shape_result(batch, result) <= batch_tokens_max_);
  pass_->enqueue(shape_.groups, batch, result);
}

}  // namespace spillway::model
