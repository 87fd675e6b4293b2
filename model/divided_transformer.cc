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
    rank->device = devices[made->ranks_.size() - 1];
    rank->config = config_of_rank(made->config_, share);
    made->load_weights_of(*rank, *tensors);
  }
  made->lay_out_pages();
  made->choose_rows();
  for (auto& rank : made->ranks_) made->make_forward(*rank);
  made->make_pass();
  made->device_ = kernels::make_device_set({devices.begin(), devices.end()}, made->pass_->home());
  auto fingerprint = made->fingerprint(file);
  if (!fingerprint) return fingerprint.error();
  made->shape_.fingerprint = *std::move(fingerprint);
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

void DividedTransformer::load_weights_of(Rank& rank, const ModelTensors& tensors) const {
  const TensorShards shards = tensors_of_rank(tensors, config_, rank.share);
  rank.weights = load_weights(rank.config, shards.tensors, options_.level,
                              options_.threads * division_.ranks());
}

void DividedTransformer::choose_rows() {
  tile_rows_ = std::min(options_.tile_rows, options_.batch_tokens_max);
  for (const auto& rank : ranks_) {
    tile_rows_ = std::min(tile_rows_, Forward::tile_rows_for(rank->config, tile_rows_));
  }
  batch_tokens_max_ =
      std::min(options_.batch_tokens_max, rows_that_fit(config_, division_, tile_rows_));
}

void DividedTransformer::make_forward(Rank& rank) const {
  const ForwardOptions forward{.level = options_.level,
                               .tile_rows = tile_rows_,
                               .workers_max = options_.threads,
                               .part = {.embeds = rank.share.embeds,
                                        .draws = rank.share.draws,
                                        .first_token = rank.share.vocabulary.first,
                                        .vocabulary = config_.vocabulary,
                                        .stamps = false}};
  rank.forward = std::make_unique<Forward>(rank.config, rank.weights, rank.layouts, forward);
}

void DividedTransformer::make_pass() {
  std::vector<PassRank> parts;
  for (const auto& rank : ranks_) {
    parts.push_back({.device = rank->device,
                     .forward = rank->forward.get(),
                     .layers = rank->config.layers,
                     .vocabulary = rank->config.vocabulary});
  }
  pass_ = std::make_unique<DividedPass>(
      PassShape{
          .division = division_, .embedding = config_.embedding, .vocabulary = config_.vocabulary},
      std::move(parts));
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

// REQUIRES: nothing is bound, or nobody computes before it is bound again.
Result<std::string> DividedTransformer::fingerprint(const GgufFile& file) {
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
  return digest.hex();
}

Result<std::string> DividedTransformer::rebuild() {
  if (spare_.replace_device == nullptr) return Runner::rebuild();
  std::string done;
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    if (!device_->has_ended(r) && ranks_[r]->forward != nullptr) continue;
    done += (done.empty() ? "rank " : ", rank ") + std::to_string(r);
    // What names the device goes before it does.
    pass_.reset();
    ranks_[r]->forward.reset();
    ranks_[r]->weights = Weights();
  }
  if (done.empty()) return std::string("no rank's device has ended");
  const Result<GgufFile> file = spare_.open_file();
  if (!file) return file.error();
  if (const Result<void> replaced = replace_lost(*file); !replaced) return replaced.error();
  Result<std::string> now = fingerprint(*file);
  if (const Error* const ended = device_->failure(); ended != nullptr) now = *ended;  // again
  if (now && *now == shape_.fingerprint) return done + " of " + std::to_string(ranks_.size());
  // Whoever is asked again begins with all.
  pass_.reset();
  for (auto& rank : ranks_) rank->forward.reset();
  if (!now) return now.error();
  return Error{ErrorCode::kUnavailable,
               "the model's file or the new device's arithmetic is another than at the start"};
}

// Ranks without a Forward get a device, if theirs has ended, their weights, and one.
Result<void> DividedTransformer::replace_lost(const GgufFile& file) {
  const auto tensors = find_model_tensors(file, config_);
  if (!tensors) return tensors.error();
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = *ranks_[r];
    if (rank.forward != nullptr) continue;
    if (device_->has_ended(r)) {
      device_->take_out(r);
      const Result<kernels::Device*> fresh = spare_.replace_device(r);
      if (!fresh) return fresh.error();
      rank.device = *fresh;
      device_->replace(r, *rank.device);
    }
    load_weights_of(rank, *tensors);
    make_forward(rank);
  }
  make_pass();
  return {};
}

void DividedTransformer::enqueue(const StepBatch& batch, StepResult& result) {
  CHECK(batch.layers_there.empty());
  CHECK(shape_result(batch, result) <= batch_tokens_max_);
  pass_->enqueue(shape_.groups, batch, result);
}

}  // namespace spillway::model
