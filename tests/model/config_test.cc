#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/inspect.h"
#include "model/rope.h"
#include "model/tensors.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/tiny_models.h"

namespace spillway::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file of one architecture with the keys that every one needs, some of them replaced.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& architecture) : prefix_(architecture + ".") {
    writer_.string("general.architecture", architecture);
  }
  ConfigFile& set(const std::string& key, uint32_t value) {
    numbers_[key] = value;
    return *this;
  }
  ConfigFile& without(const std::string& key) {
    numbers_.erase(key);
    return *this;
  }
  GgufWriter& writer() { return writer_; }

  Result<ModelConfig> read() {
    for (const auto& [key, value] : numbers_) writer_.u32(prefix_ + key, value);
    if (!has_epsilon) writer_.f32(prefix_ + "attention.layer_norm_rms_epsilon", 1e-5f);
    if (has_embedding) writer_.tensor("token_embd.weight", {64, 10}, 0, 0).data_bytes(2560);
    bytes_ = writer_.bytes();
    file_ = GgufFile::parse(std::as_bytes(std::span(bytes_)), "test.gguf").value();
    return read_model_config(*file_);
  }
  std::string message() {
    auto config = read();
    return config ? "no error" : config.error().message;
  }

  bool has_epsilon = false, has_embedding = true;

 private:
  std::string prefix_;
  std::map<std::string, uint32_t> numbers_{
      {"block_count", 12},         {"context_length", 4096},    {"embedding_length", 64},
      {"feed_forward_length", 96}, {"attention.head_count", 4}, {"attention.head_count_kv", 2}};
  GgufWriter writer_;
  std::string bytes_;
  std::optional<GgufFile> file_;
};

TEST(ModelConfig, takes_what_the_file_says_and_derives_the_rest) {
  const auto config = ConfigFile("llama").read();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->layers, 12u);
  EXPECT_EQ(config->vocabulary, 10u);
  EXPECT_EQ(config->head_dim, 16u);
  EXPECT_EQ(config->query_scale, 0.25f);
  EXPECT_EQ(config->embedding_scale, 1.0f);
  ASSERT_EQ(config->groups.size(), 1u);
  EXPECT_EQ(config->groups[0].window, 0u);
  EXPECT_EQ(config->groups[0].rope.dims, 16u);
  EXPECT_EQ(config->groups[0].rope.base, 10000.0f);
  const auto mha = ConfigFile("llama").without("attention.head_count_kv").read();
  EXPECT_EQ(mha->kv_heads, 4u);
  EXPECT_EQ(ConfigFile("llama").set("attention.head_count_kv", 1).read()->kv_heads, 1u);
}

TEST(ModelConfig, gemma3_has_two_groups_by_default) {
  const auto config = ConfigFile("gemma3").read();
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->groups.size(), 2u);
  EXPECT_EQ(config->groups[0].window, 0u);
  EXPECT_THAT(config->groups[0].layers, ElementsAre(5, 11));
  EXPECT_EQ(config->groups[1].window, 512u);
  EXPECT_THAT(config->groups[1].layers, ElementsAre(0, 1, 2, 3, 4, 6, 7, 8, 9, 10));
  EXPECT_EQ(config->groups[1].rope.base, 10000.0f);
  EXPECT_EQ(config->places[6].group, 1u);
  EXPECT_EQ(config->places[6].index, 5u);
  EXPECT_EQ(config->places[11].group, 0u);
  EXPECT_EQ(config->places[11].index, 1u);
  EXPECT_EQ(config->embedding_scale, 8.0f);
}

TEST(ModelConfig, gemma3_takes_window_pattern_and_base_from_the_file) {
  ConfigFile file("gemma3");
  file.set("attention.sliding_window", 100).set("attention.sliding_window_pattern", 2);
  file.writer().f32("gemma3.rope.freq_base_swa", 500.0f).f32("gemma3.rope.freq_base", 1e6f);
  const auto config = file.read();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->groups[1].window, 100u);
  EXPECT_EQ(config->groups[1].layers.size(), 6u);
  EXPECT_EQ(config->groups[1].rope.base, 500.0f);
  EXPECT_EQ(config->groups[0].rope.base, 1e6f);
  const std::vector<uint8_t> flags = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  ConfigFile listed("gemma3");
  listed.writer().array("gemma3.attention.sliding_window_pattern", GgufType::kBool, flags, 12);
  EXPECT_THAT(listed.read()->groups[1].layers, ElementsAre(0, 11));
  ConfigFile full("gemma3");
  full.set("attention.sliding_window", 0);
  EXPECT_EQ(full.read()->groups.size(), 1u);
}

TEST(ModelConfig, large_gemma_scales_queries_by_width) {
  const auto config = ConfigFile("gemma3")
                          .set("block_count", 62)
                          .set("attention.key_length", 4)
                          .set("attention.value_length", 4)
                          .read();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->query_scale, 0.25f);  // width 64 over 4 heads, not head dimension 4
}

TEST(ModelConfig, hostile_and_unsupported_values_are_named) {  // case M1
  auto with = [](const std::string& key, uint32_t value) {
    return ConfigFile("llama").set(key, value).message();
  };
  EXPECT_THAT(with("attention.head_count", 0), HasSubstr("'llama.attention.head_count' is 0"));
  EXPECT_THAT(with("attention.head_count_kv", 0), HasSubstr("head_count_kv' is 0"));
  EXPECT_THAT(with("attention.head_count_kv", 3), HasSubstr("not a multiple of head_count_kv"));
  EXPECT_THAT(with("attention.head_count", 128), HasSubstr("key_length' is 0"));
  EXPECT_THAT(with("block_count", 0), HasSubstr("'llama.block_count' is 0"));
  EXPECT_THAT(with("block_count", 0xffffffffu), HasSubstr("'llama.block_count' is 4294967295"));
  EXPECT_THAT(with("embedding_length", 0), HasSubstr("embedding_length"));
  EXPECT_THAT(with("embedding_length", 128), HasSubstr("token_embd.weight"));
  EXPECT_THAT(with("feed_forward_length", 1u << 30), HasSubstr("feed_forward_length"));
  EXPECT_THAT(with("context_length", 0), HasSubstr("context_length"));
  EXPECT_THAT(with("attention.key_length", 15), HasSubstr("key_length"));
  EXPECT_THAT(with("attention.value_length", 8), HasSubstr("differs from key_length"));
  EXPECT_THAT(with("rope.dimension_count", 32), HasSubstr("rope.dimension_count"));
  EXPECT_THAT(with("rope.dimension_count", 3), HasSubstr("odd"));
  EXPECT_THAT(with("expert_count", 8), HasSubstr("mixtures of experts"));
  EXPECT_THAT(ConfigFile("llama").without("block_count").message(), HasSubstr("is missing"));
  EXPECT_THAT(ConfigFile("mamba").message(),
              HasSubstr("'mamba' is not supported; supported are llama"));
  ConfigFile wrong("llama");
  wrong.without("block_count").writer().string("llama.block_count", "many");
  EXPECT_THAT(wrong.message(), HasSubstr("'llama.block_count' is string"));
  ConfigFile varied("llama");
  varied.without("attention.head_count_kv")
      .writer()
      .array<int32_t>("llama.attention.head_count_kv", GgufType::kI32, {2, 1}, 2);
  EXPECT_THAT(varied.message(), HasSubstr("differs from layer to layer"));
  ConfigFile longrope("llama");
  longrope.writer()
      .string("llama.rope.scaling.type", "longrope")
      .f32("llama.rope.scaling.factor", 4);
  EXPECT_THAT(longrope.message(), HasSubstr("'longrope'; none, linear and yarn"));
  ConfigFile empty("llama");
  empty.has_embedding = false;
  EXPECT_THAT(empty.message(), HasSubstr("'token_embd.weight' is missing"));
  ConfigFile tokens("llama");
  tokens.writer().strings("tokenizer.ggml.tokens", {"a", "b"});
  EXPECT_THAT(tokens.message(), HasSubstr("'tokenizer.ggml.tokens' has 2 tokens"));
  ConfigFile epsilon("llama");
  epsilon.has_epsilon = true;
  epsilon.writer().f32("llama.attention.layer_norm_rms_epsilon", -1);
  EXPECT_THAT(epsilon.message(), HasSubstr("layer_norm_rms_epsilon"));
}

TEST(ModelTensors, missing_misshapen_and_unknown_ones_are_named) {  // case M1
  const TinyModel model("qwen3_qk_norm");
  const auto config = read_model_config(model.file).value();
  EXPECT_TRUE(find_model_tensors(model.file, config));
  ModelConfig wider = config;
  wider.feed_forward = 128;
  EXPECT_THAT(find_model_tensors(model.file, wider).error().message,
              HasSubstr("tensor 'blk.0.ffn_gate.weight' is 64 x 96; 64 x 128 is expected"));
  ModelConfig deeper = config;
  deeper.layers = 3;
  EXPECT_THAT(find_model_tensors(model.file, deeper).error().message,
              HasSubstr("tensor 'blk.2.attn_norm.weight' is missing"));
  ModelConfig llama = config;
  llama.architecture = &architectures()[0];
  EXPECT_THAT(find_model_tensors(model.file, llama).error().message,
              HasSubstr("tensor 'blk.0.attn_k_norm.weight' is no part of this architecture"));
}

TEST(Rope, frequencies_of_linear_and_llama3_stretching) {
  const RopeConfig linear{.dims = 4, .base = 100, .scaling = RopeScaling::kLinear, .factor = 2};
  EXPECT_THAT(make_rope(linear, kernels::RopeOrder::kPairs, {}).inverse_frequencies,
              ElementsAre(0.5, testing::DoubleNear(0.05, 1e-12)));
  const RopeConfig plain{.dims = 4, .base = 100};
  EXPECT_THAT(
      make_rope(plain, kernels::RopeOrder::kPairs, std::vector<float>{1, 4}).inverse_frequencies,
      ElementsAre(1.0, testing::DoubleNear(0.025, 1e-12)));
}

TEST(Inspect, says_what_a_person_wants_to_know) {
  const TinyModel model("gemma3_soft_caps");
  const auto config = read_model_config(model.file).value();
  const auto groups = kv_groups(config, kernels::KvType::kF16, 16);
  const std::string text = inspect_text(model.file, config, groups, 64 << 10);
  EXPECT_THAT(text, HasSubstr("architecture    gemma3"));
  EXPECT_THAT(text, HasSubstr("MQA, 4 query heads, 1 KV heads, head dimension 16"));
  EXPECT_THAT(text, HasSubstr("1 layers, full attention"));
  EXPECT_THAT(text, HasSubstr("6 layers, window of 20"));
  EXPECT_THAT(text, HasSubstr("64 B per token"));
  EXPECT_THAT(text, HasSubstr("output tied to input"));
  EXPECT_THAT(text, HasSubstr("64.0 KiB holds a context of 160 tokens"));
}

TEST(Inspect, longest_context_is_the_last_that_fits) {
  const std::vector<kernels::KvGroupLayout> groups = {
      {.layers = 2, .kv_heads = 1, .head_dim = 64, .page_tokens = 16},
      {.layers = 6, .kv_heads = 1, .head_dim = 64, .page_tokens = 16, .window = 40}};
  for (uint64_t bytes : {0ull, 4096ull, 32768ull, 100000ull, 1000000ull}) {
    const uint32_t tokens = longest_context(groups, bytes, 5000);
    EXPECT_LE(kv_bytes_of_sequence(groups, tokens), bytes);
    if (tokens < 5000) EXPECT_GT(kv_bytes_of_sequence(groups, tokens + 1), bytes);
  }
  EXPECT_EQ(longest_context(groups, ~0ull, 5000), 5000u);
  EXPECT_EQ(kv_bytes_of_sequence(groups, 0), 0u);
}

}  // namespace
}  // namespace spillway::model
