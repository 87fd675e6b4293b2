#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace spillway::model {
namespace {

using kernels::RopeOrder;

constexpr Architecture kArchitectures[] = {
    // Mistral's files say llama, too.
    {.name = "llama", .rope_order = RopeOrder::kPairs, .window_allowed = true},
    {.name = "qwen2", .qkv_bias = Presence::kRequired},
    {.name = "qwen3", .qk_norm = true},
    {.name = "gemma3",
     .activation = Activation::kGelu,
     .qkv_bias = Presence::kNone,
     .qk_norm = true,
     .post_norms = true,
     .scaled_embedding = true,
     .window_default = 512,
     .window_pattern_default = 6,
     .window_allowed = true},
};

// Bounds far above any model, so that products of two stay far from overflow and a hostile count
// allocates nothing.
constexpr uint32_t kLayersMax = 1024;
constexpr uint32_t kWidthMax = 1u << 20;
constexpr uint32_t kHeadsMax = 1u << 12;
constexpr uint32_t kHeadDimMax = 1024;
constexpr uint32_t kContextMax = 1u << 30;
constexpr uint32_t kGemma27bLayers = 62;  // its queries are scaled by the width per head
constexpr float kGemmaWindowRopeBase = 10000.0f;

// Reads the keys of one architecture. The first error sticks; later reads give harmless values.
class Reader {
 public:
  Reader(const GgufFile& file, const Architecture& architecture)
      : file_(file), prefix_(std::string(architecture.name) + ".") {}

  const std::optional<Error>& error() const { return error_; }
  bool has(std::string_view key) const { return file_.has(prefix_ + std::string(key)); }

  void fail(ErrorCode code, std::string_view key, const std::string& what) {
    if (!error_)
      error_ = Error{code, file_.name() + ": '" + prefix_ + std::string(key) + "' " + what};
  }

  uint32_t integer(std::string_view key, uint32_t low, uint32_t high,
                   std::optional<uint32_t> fallback = {}) {
    if (fallback && !has(key)) return *fallback;
    const auto value = per_layer_integer(key);
    if (!value) {
      if (!error_) error_ = value.error();
      return low;
    }
    if (*value >= low && *value <= high) return *value;
    fail(ErrorCode::kCorrupt, key,
         "is " + std::to_string(*value) + "; " + std::to_string(low) + " to " +
             std::to_string(high) + " is accepted");
    return low;
  }

  float number(std::string_view key, float low, float high, std::optional<float> fallback = {}) {
    if (fallback && !has(key)) return *fallback;
    const auto value = file_.get_f32(prefix_ + std::string(key));
    if (!value) {
      if (!error_) error_ = value.error();
      return low;
    }
    if (*value >= low && *value <= high) return *value;
    fail(ErrorCode::kCorrupt, key,
         "is " + std::to_string(*value) + "; " + std::to_string(low) + " to " +
             std::to_string(high) + " is accepted");
    return low;
  }

  std::string_view text(std::string_view key, std::string_view fallback) {
    const auto value = file_.get_string_or(prefix_ + std::string(key), fallback);
    if (!value && !error_) error_ = value.error();
    return value ? *value : fallback;
  }

  // Which layers have the window, by a pattern's length or a list of flags.
  std::vector<bool> windowed_layers(uint32_t layers, uint32_t pattern_default);

 private:
  // Some files give one number per layer; only files where all agree are computed.
  Result<uint32_t> per_layer_integer(std::string_view key) {
    const std::string name = prefix_ + std::string(key);
    const GgufValue* value = file_.find(name);
    if (value == nullptr || value->type != GgufType::kArray) return file_.get_u32(name);
    const auto list = file_.get_ints(name);
    if (!list) return list.error();
    const bool same = !list->empty() && std::equal(list->begin() + 1, list->end(), list->begin());
    if (!same || list->front() < 0 || list->front() > UINT32_MAX) {
      return Error{ErrorCode::kUnsupported, file_.name() + ": '" + name +
                                                "' differs from layer to layer, which Spillway "
                                                "does not support"};
    }
    return static_cast<uint32_t>(list->front());
  }

  const GgufFile& file_;
  std::string prefix_;
  std::optional<Error> error_;
};

std::vector<bool> Reader::windowed_layers(uint32_t layers, uint32_t pattern_default) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  std::vector<bool> windowed(layers);
  const GgufValue* value = file_.find(prefix_ + std::string(kKey));
  if (value != nullptr && value->type == GgufType::kArray) {
    const auto flags = file_.get_ints(value->key);
    if (!flags) {
      if (!error_) error_ = flags.error();
    } else if (flags->size() != layers) {
      fail(ErrorCode::kCorrupt, kKey, "must have one entry per layer");
    } else {
      for (uint32_t i = 0; i < layers; ++i) windowed[i] = (*flags)[i] != 0;
    }
    return windowed;
  }
  const uint32_t pattern = integer(kKey, 1, kLayersMax, pattern_default);
  for (uint32_t i = 0; i < layers; ++i) windowed[i] = pattern == 1 || i % pattern != pattern - 1;
  return windowed;
}

RopeConfig read_rope(Reader& reader, const ModelConfig& config) {
  RopeConfig rope;
  rope.dims = reader.integer("rope.dimension_count", 2, config.head_dim, config.head_dim);
  if (rope.dims % 2 != 0) {
    reader.fail(ErrorCode::kCorrupt, "rope.dimension_count", "is odd; dimensions rotate in pairs");
  }
  rope.base = reader.number("rope.freq_base", 1.0f, 1e12f, 10000.0f);
  // Older files name only the factor of a linear stretch.
  rope.factor = reader.has("rope.scaling.factor")
                    ? reader.number("rope.scaling.factor", 0.0f, 1e6f)
                    : reader.number("rope.scale_linear", 0.0f, 1e6f, 1.0f);
  if (rope.factor == 0.0f) rope.factor = 1.0f;
  const std::string_view scaling = reader.text("rope.scaling.type", "linear");
  rope.attention_factor = reader.number("rope.scaling.attn_factor", 1e-3f, 1e3f, 1.0f);
  if (scaling == "none" || rope.factor == 1.0f) {
    rope.factor = 1.0f;
  } else if (scaling == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (scaling == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.original_context = reader.integer("rope.scaling.original_context_length", 1, kContextMax,
                                           config.context_tokens_max);
    rope.beta_fast = reader.number("rope.scaling.yarn_beta_fast", 1e-3f, 1e6f, 32.0f);
    rope.beta_slow = reader.number("rope.scaling.yarn_beta_slow", 1e-3f, 1e6f, 1.0f);
    if (reader.has("rope.scaling.yarn_log_multiplier") ||
        reader.has("rope.scaling.yarn_ext_factor")) {
      reader.fail(ErrorCode::kUnsupported, "rope.scaling",
                  "uses a variant of YaRN that is not "
                  "supported (yarn_log_multiplier or yarn_ext_factor)");
    }
  } else {
    reader.fail(ErrorCode::kUnsupported, "rope.scaling.type",
                "is " + in_quotes(scaling) + "; none, linear and yarn are supported");
  }
  return rope;
}

void read_attention(Reader& reader, ModelConfig& config) {
  config.heads = reader.integer("attention.head_count", 1, kHeadsMax);
  config.kv_heads = reader.integer("attention.head_count_kv", 1, kHeadsMax, config.heads);
  if (config.heads % config.kv_heads != 0) {
    reader.fail(ErrorCode::kCorrupt, "attention.head_count",
                "is " + std::to_string(config.heads) + ", not a multiple of head_count_kv, " +
                    std::to_string(config.kv_heads));
  }
  const uint32_t even_share = config.embedding / config.heads;
  config.head_dim = reader.integer("attention.key_length", 2, kHeadDimMax, even_share);
  if (config.head_dim < 2 || config.head_dim > kHeadDimMax || config.head_dim % 2 != 0) {
    reader.fail(
        ErrorCode::kUnsupported, "attention.key_length",
        "is " + std::to_string(config.head_dim) + "; an even number of 2 to 1024 is accepted");
    config.head_dim = 2;
  }
  if (reader.integer("attention.value_length", 1, kHeadDimMax, config.head_dim) !=
      config.head_dim) {
    reader.fail(ErrorCode::kUnsupported, "attention.value_length", "differs from key_length");
  }
  config.attention_soft_cap = reader.number("attn_logit_softcapping", 0.0f, 1e6f, 0.0f);
  config.final_soft_cap = reader.number("final_logit_softcapping", 0.0f, 1e6f, 0.0f);
  const bool by_width =
      config.architecture->window_default != 0 && config.layers == kGemma27bLayers;
  const float scale = 1.0f / std::sqrt(static_cast<float>(by_width ? even_share : config.head_dim));
  config.query_scale = reader.number("attention.scale", 1e-6f, 1e6f, scale);
}

void read_groups(Reader& reader, ModelConfig& config) {
  const Architecture& arch = *config.architecture;
  const RopeConfig rope = read_rope(reader, config);
  const uint32_t window = arch.window_allowed ? reader.integer("attention.sliding_window", 0,
                                                               kContextMax, arch.window_default)
                                              : 0;
  const std::vector<bool> windowed =
      window == 0 ? std::vector<bool>(config.layers)
                  : reader.windowed_layers(config.layers, arch.window_pattern_default);
  // Window layers of gemma3 have a rope base of their own and are never stretched.
  RopeConfig window_rope = rope;
  if (arch.window_default != 0) {
    window_rope = {.dims = rope.dims,
                   .base = reader.number("rope.freq_base_swa", 1.0f, 1e12f, kGemmaWindowRopeBase)};
  }
  LayerGroup full{.window = 0, .rope = rope, .layers = {}};
  LayerGroup sliding{.window = window, .rope = window_rope, .layers = {}};
  for (uint32_t i = 0; i < config.layers; ++i) {
    (windowed[i] ? sliding : full).layers.push_back(i);
  }
  for (LayerGroup* group : {&full, &sliding}) {
    if (!group->layers.empty()) config.groups.push_back(std::move(*group));
  }
  config.places.resize(config.layers);
  for (uint32_t g = 0; g < config.groups.size(); ++g) {
    const std::vector<uint32_t>& layers = config.groups[g].layers;
    for (uint32_t i = 0; i < layers.size(); ++i) config.places[layers[i]] = {g, i};
  }
}

// The vocabulary is as wide as the embedding; a tokenizer of another size would draw wrong ids.
Result<uint32_t> read_vocabulary(const GgufFile& file, uint32_t embedding) {
  const GgufTensor* table = file.tensor("token_embd.weight");
  if (table == nullptr) {
    return Error{ErrorCode::kCorrupt, file.name() + ": tensor 'token_embd.weight' is missing"};
  }
  if (table->rank > 2 || table->dims[0] != embedding || table->dims[1] > kWidthMax * 16) {
    return Error{ErrorCode::kCorrupt, file.name() + ": tensor 'token_embd.weight' is " +
                                          std::to_string(table->dims[0]) + " x " +
                                          std::to_string(table->dims[1]) +
                                          "; its first dimension must be the embedding length, " +
                                          std::to_string(embedding)};
  }
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->count != table->dims[1]) {
    return Error{ErrorCode::kCorrupt,
                 file.name() + ": 'tokenizer.ggml.tokens' has " + std::to_string(tokens->count) +
                     " tokens, but 'token_embd.weight' has " + std::to_string(table->dims[1])};
  }
  return static_cast<uint32_t>(table->dims[1]);
}

Result<const Architecture*> find_architecture(const GgufFile& file) {
  const auto name = file.get_string("general.architecture");
  if (!name) return name.error();
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == *name) return &architecture;
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return Error{ErrorCode::kUnsupported, file.name() + ": architecture " + in_quotes(*name) +
                                            " is not supported; supported are " + known};
}

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

Result<ModelConfig> read_model_config(const GgufFile& file) {
  const auto architecture = find_architecture(file);
  if (!architecture) return architecture.error();
  ModelConfig config;
  config.architecture = *architecture;
  Reader reader(file, **architecture);
  config.layers = reader.integer("block_count", 1, kLayersMax);
  config.context_tokens_max = reader.integer("context_length", 1, kContextMax);
  config.embedding = reader.integer("embedding_length", 1, kWidthMax);
  config.feed_forward = reader.integer("feed_forward_length", 1, kWidthMax);
  config.norm_epsilon = reader.number("attention.layer_norm_rms_epsilon", 0.0f, 1.0f);
  if (reader.integer("expert_count", 0, UINT32_MAX, 0) != 0) {
    reader.fail(ErrorCode::kUnsupported, "expert_count",
                "is set: mixtures of experts are not supported");
  }
  if (reader.error()) return *reader.error();
  read_attention(reader, config);
  if (reader.error()) return *reader.error();
  read_groups(reader, config);
  if (reader.error()) return *reader.error();
  if (config.architecture->scaled_embedding) {
    config.embedding_scale = std::sqrt(static_cast<float>(config.embedding));
  }
  const auto vocabulary = read_vocabulary(file, config.embedding);
  if (!vocabulary) return vocabulary.error();
  config.vocabulary = *vocabulary;
  return config;
}

std::vector<kernels::KvGroupLayout> kv_groups(const ModelConfig& config, kernels::KvType type,
                                              uint32_t page_tokens) {
  std::vector<kernels::KvGroupLayout> layouts;
  for (const LayerGroup& group : config.groups) {
    layouts.push_back({.layers = static_cast<uint32_t>(group.layers.size()),
                       .kv_heads = config.kv_heads,
                       .head_dim = config.head_dim,
                       .page_tokens = page_tokens,
                       .window = group.window,
                       .type = type});
  }
  return layouts;
}

}  // namespace spillway::model
