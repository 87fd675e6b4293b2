// What a model is, as data: the one description that the single forward pass reads. Architectures
// differ in the entries of a table, not in code. Read from a GGUF file's metadata and checked once;
// immutable afterwards: any thread. Names of the keys: the GGUF specification.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "kernels/paged_kv.h"
#include "model/gguf.h"
#include "runtime/result.h"

namespace spillway::model {

enum class Activation : uint8_t { kSilu, kGelu };
enum class Presence : uint8_t { kNone, kOptional, kRequired };

// What all models of one architecture have in common.
struct Architecture {
  std::string_view name;  // general.architecture
  kernels::RopeOrder rope_order = kernels::RopeOrder::kHalves;
  Activation activation = Activation::kSilu;
  Presence qkv_bias = Presence::kOptional;
  bool qk_norm = false;           // RMS norm of each query and key head before rope
  bool post_norms = false;        // RMS norm of what attention and MLP add to the residual
  bool scaled_embedding = false;  // token embeddings times sqrt(embedding length)
  // Sliding window, where the file does not name it; 0: none unless named.
  uint32_t window_default = 0;
  // Of this many consecutive layers the last attends fully; 1: every layer has the window.
  uint32_t window_pattern_default = 1;
  bool window_allowed = false;
};
std::span<const Architecture> architectures();

enum class RopeScaling : uint8_t { kNone, kLinear, kYarn };

struct RopeConfig {
  uint32_t dims = 0;
  float base = 10000.0f;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;            // context is stretched by this much
  uint32_t original_context = 0;  // YaRN: trained length before stretching
  float beta_fast = 32.0f, beta_slow = 1.0f;
  float attention_factor = 1.0f;
};

// Layers that attend alike (DESIGN, Pages): their KV shares pages.
struct LayerGroup {
  uint32_t window = 0;  // tokens a query sees, its own included; 0: all
  RopeConfig rope;
  std::vector<uint32_t> layers;  // ascending
};

// A layer's place: group index, and its index among the group's layers.
struct LayerPlace {
  uint32_t group = 0;
  uint32_t index = 0;
};

struct ModelConfig {
  const Architecture* architecture = nullptr;
  uint32_t vocabulary = 0;
  uint32_t context_tokens_max = 0;
  uint32_t layers = 0;
  uint32_t embedding = 0;     // width of the residual
  uint32_t feed_forward = 0;  // width of the MLP
  uint32_t heads = 0;         // of queries; heads / kv_heads of them share one KV head
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  float norm_epsilon = 0;
  float query_scale = 0;  // times q . k
  float embedding_scale = 1;
  float attention_soft_cap = 0;    // 0: none
  float final_soft_cap = 0;        // 0: none
  std::vector<LayerGroup> groups;  // full attention first, if any layer has it
  std::vector<LayerPlace> places;  // (layers)

  uint32_t query_width() const { return heads * head_dim; }
  uint32_t kv_width() const { return kv_heads * head_dim; }
};

// The error names the key that is missing, wrong, or not supported.
Result<ModelConfig> read_model_config(const GgufFile& file);

// The KV layout of each of the config's groups, in their order.
std::vector<kernels::KvGroupLayout> kv_groups(const ModelConfig& config, kernels::KvType type,
                                              uint32_t page_tokens);

}  // namespace spillway::model
