#include "model/division.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "model/tensor_shards.h"
#include "runtime/prng.h"
#include "tests/model/tiny_models.h"

namespace spillway::model {
namespace {

ModelConfig config_of(uint32_t heads, uint32_t kv_heads, uint32_t head_dim) {
  ModelConfig config;
  config.vocabulary = 1000;
  config.layers = 12;
  config.embedding = 64;
  config.feed_forward = 1536;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.groups = {{.window = 0, .rope = {}, .layers = {5, 11}},
                   {.window = 512, .rope = {}, .layers = {0, 1, 2, 3, 4, 6, 7, 8, 9, 10}}};
  config.places.resize(config.layers);
  for (uint32_t g = 0; g < 2; ++g) {
    for (uint32_t i = 0; i < config.groups[g].layers.size(); ++i) {
      config.places[config.groups[g].layers[i]] = {g, i};
    }
  }
  return config;
}

struct Expected {
  Range heads, kv_heads;
};

void expect_heads(const ModelConfig& config, const DivisionBlocks& blocks,
                  const std::vector<Expected>& expected) {
  const Division division{.tensor = static_cast<uint32_t>(expected.size())};
  const auto shares = divide(config, blocks, division);
  ASSERT_TRUE(shares) << shares.error().message;
  for (size_t r = 0; r < expected.size(); ++r) {
    EXPECT_EQ((*shares)[r].heads, expected[r].heads) << r;
    EXPECT_EQ((*shares)[r].kv_heads, expected[r].kv_heads) << r;
  }
}

TEST(Division, heads_that_do_not_divide_are_sharded_unevenly) {
  expect_heads(config_of(9, 3, 64), {32, 32}, {{{0, 3}, {0, 1}}, {{3, 9}, {1, 3}}});
  expect_heads(config_of(14, 2, 64), {32, 32}, {{{0, 7}, {0, 1}}, {{7, 14}, {1, 2}}});
  // A KV head's query heads have 3 x 64 inputs: blocks of 256 end behind every fourth.
  expect_heads(config_of(24, 8, 64), {256, 256}, {{{0, 12}, {0, 4}}, {{12, 24}, {4, 8}}});
}

TEST(Division, a_kv_head_lies_on_several_ranks_where_there_are_too_few) {
  expect_heads(config_of(4, 1, 256), {256, 256}, {{{0, 2}, {0, 1}}, {{2, 4}, {0, 1}}});
  expect_heads(config_of(9, 3, 64), {32, 32},
               {{{0, 1}, {0, 1}}, {{1, 3}, {0, 1}}, {{3, 6}, {1, 2}}, {{6, 9}, {2, 3}}});
}

TEST(Division, what_does_not_go_round_is_refused_with_the_reason) {
  const auto message = [](const ModelConfig& config, const DivisionBlocks& blocks,
                          const Division& division) {
    const auto shares = divide(config, blocks, division);
    return shares ? std::string() : shares.error().message;
  };
  const auto holds = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(holds, message(config_of(4, 4, 64), {256, 1}, {.tensor = 2}), "blocks of 256");
  EXPECT_PRED2(holds, message(config_of(2, 1, 64), {1, 1}, {.tensor = 4}), "2 query and 1 KV");
  EXPECT_PRED2(holds, message(config_of(2, 2, 64), {1, 1}, {.pipeline = 13}), "12 layers");
  EXPECT_PRED2(holds, message(config_of(16, 16, 64), {1, 256}, {.tensor = 8}), "1536 columns");
}

// Whatever is accepted: nothing is left out or done twice, and every query head lies beside its
// KV head, at the place where attention looks for it.
TEST(Division, parts_cover_the_model) {
  constexpr uint64_t kSeed = 4242;
  std::printf("seed %lu\n", static_cast<unsigned long>(kSeed));
  uint32_t accepted = 0, refused = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    auto pick = [&, n = uint64_t{0}](uint32_t low, uint32_t high) mutable {
      return low + static_cast<uint32_t>(random_at(kSeed, i, n++) % (high - low + 1));
    };
    const uint32_t kv_heads = pick(1, 9);
    ModelConfig config = config_of(kv_heads * pick(1, 9), kv_heads, 16 * pick(1, 8));
    config.feed_forward = 32 * pick(1, 40);
    const uint32_t blocks[] = {1, 32, 256};
    const DivisionBlocks cut{.attention_output = blocks[pick(0, 2)], .down = blocks[pick(0, 1)]};
    const Division division{.tensor = pick(1, 8), .pipeline = pick(1, 12)};
    const auto shares = divide(config, cut, division);
    if (!shares) {
      ++refused;
      continue;
    }
    ++accepted;
    ASSERT_EQ(shares->size(), division.ranks());
    uint32_t layer = 0;
    for (uint32_t r = 0; r < division.ranks(); ++r) {
      const RankShare& share = (*shares)[r];
      const bool begins_stage = r % division.tensor == 0;
      if (begins_stage) ASSERT_EQ(share.layers.first, layer);
      layer = share.layers.end;
      const RankShare* before = begins_stage ? nullptr : &(*shares)[r - 1];
      ASSERT_EQ(share.heads.first, before == nullptr ? 0 : before->heads.end);
      ASSERT_EQ(share.feed_forward.first, before == nullptr ? 0 : before->feed_forward.end);
      ASSERT_EQ(share.vocabulary.first, before == nullptr ? 0 : before->vocabulary.end);
      if ((r + 1) % division.tensor == 0) {
        ASSERT_EQ(share.heads.end, config.heads);
        ASSERT_EQ(share.feed_forward.end, config.feed_forward);
        ASSERT_EQ(share.vocabulary.end, config.vocabulary);
      }
      if (share.heads.end < config.heads) {
        ASSERT_EQ(share.heads.end * config.head_dim % cut.attention_output, 0u);
      }
      if (share.feed_forward.end < config.feed_forward) {
        ASSERT_EQ(share.feed_forward.end % cut.down, 0u);
      }
      ASSERT_EQ(share.heads.count() % share.kv_heads.count(), 0u);
      const uint32_t group = share.heads.count() / share.kv_heads.count();
      for (uint32_t h = 0; h < share.heads.count(); ++h) {
        const uint32_t kv_head = (share.heads.first + h) / (config.heads / config.kv_heads);
        ASSERT_EQ(share.kv_heads.first + h / group, kv_head);
      }
      const ModelConfig part = config_of_rank(config, share);
      for (uint32_t own = 0; own < part.layers; ++own) {
        const LayerPlace place = part.places[own];
        ASSERT_EQ(place.group, config.places[share.layers.first + own].group);
        ASSERT_EQ(part.groups[place.group].layers[place.index], own);
      }
    }
    ASSERT_EQ(layer, config.layers);
  }
  std::printf("%u divisions accepted, %u refused\n", accepted, refused);
  EXPECT_GT(accepted, 500u);
  EXPECT_GT(refused, 100u);
}

// The elements of all ranks' parts are the matrix's, in their places.
TEST(Division, parts_of_tensors_hold_the_elements_of_the_whole) {
  for (const std::string& name : kTinyModels) {
    const TinyModel model(name);
    const ModelConfig config = read_model_config(model.file).value();
    const ModelTensors tensors = find_model_tensors(model.file, config).value();
    const auto shares = divide(config, division_blocks(tensors), {.tensor = 2}).value();
    const LayerTensors& whole = tensors.layers.back();
    const std::vector<float> down = tensor_floats(whole.down);
    const std::vector<float> key = tensor_floats(whole.key);
    const std::vector<float> embedding = tensor_floats(tensors.embedding);
    for (const RankShare& share : shares) {
      const TensorShards shards = tensors_of_rank(tensors, config, share);
      const LayerTensors& part = shards.tensors.layers.back();
      const std::vector<float> part_down = tensor_floats(part.down);
      const uint32_t inputs = share.feed_forward.count();
      ASSERT_EQ(part_down.size(), size_t{inputs} * config.embedding);
      for (size_t i = 0; i < part_down.size(); ++i) {
        const size_t row = i / inputs, column = share.feed_forward.first + i % inputs;
        ASSERT_EQ(part_down[i], down[row * config.feed_forward + column]) << name;
      }
      const size_t skipped = size_t{share.kv_heads.first} * config.head_dim * config.embedding;
      const std::vector<float> part_key = tensor_floats(part.key);
      ASSERT_EQ(part_key.size(),
                size_t{share.kv_heads.count()} * config.head_dim * config.embedding);
      for (size_t i = 0; i < part_key.size(); ++i) ASSERT_EQ(part_key[i], key[skipped + i]);
      const std::vector<float> part_embedding = tensor_floats(shards.tensors.embedding);
      const size_t first = size_t{share.vocabulary.first} * config.embedding;
      ASSERT_EQ(part_embedding.size(), size_t{share.vocabulary.count()} * config.embedding);
      for (size_t i = 0; i < part_embedding.size(); ++i) {
        ASSERT_EQ(part_embedding[i], embedding[first + i]) << name;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::model
