#include "model/division.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "runtime/check.h"

namespace spillway::model {
namespace {

constexpr uint32_t kPanel = 16;  // outputs that kernels compute together

struct HeadShare {
  Range heads, kv_heads;
};

// Part `index` of `parts` of [0, total), with borders at multiples of `unit`.
Range part_of(uint32_t total, uint32_t unit, uint32_t index, uint32_t parts) {
  const uint64_t units = (uint64_t{total} + unit - 1) / unit;
  const auto border = [&](uint64_t part) {
    return static_cast<uint32_t>(std::min<uint64_t>(total, units * part / parts * unit));
  };
  return {border(index), border(index + 1)};
}

// The least count of items of `elements` elements that is whole blocks.
uint32_t items_of_blocks(uint32_t block, uint64_t elements) {
  return static_cast<uint32_t>(block / std::gcd(uint64_t{block}, elements));
}

// Runs of whole KV heads.
HeadShare whole_kv_heads(const ModelConfig& config, uint32_t block, uint32_t place,
                         uint32_t tensor) {
  const uint32_t group = config.heads / config.kv_heads;
  const uint32_t unit = items_of_blocks(block, uint64_t{group} * config.head_dim);
  const Range kv_heads = part_of(config.kv_heads, unit, place, tensor);
  return {.heads = {kv_heads.first * group, kv_heads.end * group}, .kv_heads = kv_heads};
}

// One KV head, and a part of the query heads that share it.
HeadShare part_of_kv_head(const ModelConfig& config, uint32_t block, uint32_t place,
                          uint32_t tensor) {
  const uint32_t group = config.heads / config.kv_heads;
  const auto kv_head_of = [&](uint32_t rank) { return rank * config.kv_heads / tensor; };
  const uint32_t kv_head = kv_head_of(place);
  uint32_t first = place, end = place + 1;  // the ranks that have this KV head
  while (first > 0 && kv_head_of(first - 1) == kv_head) --first;
  while (end < tensor && kv_head_of(end) == kv_head) ++end;
  const uint32_t unit = items_of_blocks(block, config.head_dim);
  const Range part = part_of(group, unit, place - first, end - first);
  return {.heads = {kv_head * group + part.first, kv_head * group + part.end},
          .kv_heads = {kv_head, kv_head + 1}};
}

bool ends_on_blocks(const ModelConfig& config, uint32_t head, uint32_t block) {
  return head == config.heads || uint64_t{head} * config.head_dim % block == 0;
}

Error too_many(const char* flag, uint32_t asked, const std::string& what) {
  return invalid_argument(std::string(flag) + " " + std::to_string(asked) + ": " + what);
}

Error heads_do_not_go_round(const ModelConfig& config, uint32_t tensor, uint32_t block) {
  return too_many("--tensor-parallel-size", tensor,
                  "the model's " + std::to_string(config.heads) + " query and " +
                      std::to_string(config.kv_heads) + " KV heads of " +
                      std::to_string(config.head_dim) +
                      " elements cannot be divided over so many devices at whole blocks of " +
                      std::to_string(block) + "; fewer are accepted");
}

}  // namespace

DivisionBlocks division_blocks(const ModelTensors& tensors) {
  DivisionBlocks blocks;  // sizes divide each other
  for (const LayerTensors& layer : tensors.layers) {
    blocks.attention_output =
        std::max(blocks.attention_output, kernels::block_elements(layer.attention_output.type));
    blocks.down = std::max(blocks.down, kernels::block_elements(layer.down.type));
  }
  return blocks;
}

Result<std::vector<RankShare>> divide(const ModelConfig& config, const DivisionBlocks& blocks,
                                      const Division& division) {
  CHECK(division.tensor > 0);
  CHECK(division.pipeline > 0);
  const uint32_t tensor = division.tensor;
  if (division.pipeline > config.layers) {
    return too_many("--pipeline-parallel-size", division.pipeline,
                    "the model has " + std::to_string(config.layers) + " layers");
  }
  // In units that kernels like where there are enough of them.
  const auto unit_of = [&](uint32_t total, uint32_t block) {
    const uint32_t panels = std::lcm(block, kPanel);
    return total / panels >= tensor ? panels : block;
  };
  const uint32_t mlp_unit = unit_of(config.feed_forward, blocks.down);
  const uint32_t vocabulary_unit = unit_of(config.vocabulary, 1);
  std::vector<RankShare> shares;
  for (uint32_t rank = 0; rank < division.ranks(); ++rank) {
    RankShare& share = shares.emplace_back();
    share.stage = rank / tensor;
    share.place = rank % tensor;
    share.embeds = share.stage == 0;
    share.draws = share.stage + 1 == division.pipeline;
    share.layers = part_of(config.layers, 1, share.stage, division.pipeline);
    const auto split = tensor <= config.kv_heads ? whole_kv_heads : part_of_kv_head;
    const HeadShare heads = split(config, blocks.attention_output, share.place, tensor);
    share.heads = heads.heads;
    share.kv_heads = heads.kv_heads;
    share.feed_forward = part_of(config.feed_forward, mlp_unit, share.place, tensor);
    share.vocabulary = part_of(config.vocabulary, vocabulary_unit, share.place, tensor);
    if (share.heads.count() == 0 ||
        !ends_on_blocks(config, share.heads.first, blocks.attention_output) ||
        !ends_on_blocks(config, share.heads.end, blocks.attention_output)) {
      return heads_do_not_go_round(config, tensor, blocks.attention_output);
    }
    if (share.feed_forward.count() == 0 || share.vocabulary.count() == 0) {
      return too_many("--tensor-parallel-size", tensor,
                      "the MLP of " + std::to_string(config.feed_forward) +
                          " columns and the vocabulary of " + std::to_string(config.vocabulary) +
                          " cannot be divided over so many devices at whole blocks of " +
                          std::to_string(blocks.down) + "; fewer are accepted");
    }
  }
  return shares;
}

ModelConfig config_of_rank(const ModelConfig& config, const RankShare& share) {
  ModelConfig part = config;
  part.layers = share.layers.count();
  part.heads = share.heads.count();
  part.kv_heads = share.kv_heads.count();
  part.feed_forward = share.feed_forward.count();
  part.vocabulary = share.vocabulary.count();
  part.places.assign(part.layers, {});
  for (uint32_t g = 0; g < config.groups.size(); ++g) {
    std::vector<uint32_t>& layers = part.groups[g].layers;
    layers.clear();
    for (const uint32_t layer : config.groups[g].layers) {
      if (layer < share.layers.first || layer >= share.layers.end) continue;
      const uint32_t own = layer - share.layers.first;
      part.places[own] = {g, static_cast<uint32_t>(layers.size())};
      layers.push_back(own);
    }
  }
  return part;
}

}  // namespace spillway::model
