#include "model/tensors.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "kernels/dequantize.h"

namespace spillway::model {
namespace {

// Takes tensors by name and remembers which. The first error sticks.
class Finder {
 public:
  explicit Finder(const GgufFile& file) : file_(file) {}

  const std::optional<Error>& error() const { return error_; }

  std::optional<GgufTensor> find(const std::string& name, uint64_t inputs, uint64_t outputs = 1) {
    const GgufTensor* tensor = file_.tensor(name);
    if (tensor == nullptr || error_) return std::nullopt;
    if (tensor->dims != std::array<uint64_t, 4>{inputs, outputs, 1, 1}) {
      fail(ErrorCode::kCorrupt, name,
           "is " + shape_text(*tensor) + "; " + std::to_string(inputs) + " x " +
               std::to_string(outputs) + " is expected");
      return std::nullopt;
    }
    used_.push_back(tensor);
    return *tensor;
  }
  GgufTensor need(const std::string& name, uint64_t inputs, uint64_t outputs = 1) {
    auto tensor = find(name, inputs, outputs);
    if (!tensor) fail(ErrorCode::kCorrupt, name, "is missing");
    return tensor.value_or(GgufTensor{});
  }
  std::optional<GgufTensor> find_if(Presence presence, const std::string& name, uint64_t inputs) {
    if (presence == Presence::kNone) return std::nullopt;
    if (presence == Presence::kOptional) return find(name, inputs);
    return need(name, inputs);
  }

  // A tensor that nothing reads would be left out of the answer without a word.
  void refuse_the_rest() {
    std::sort(used_.begin(), used_.end());
    for (const GgufTensor& tensor : file_.tensors()) {
      if (!std::binary_search(used_.begin(), used_.end(), &tensor)) {
        fail(ErrorCode::kUnsupported, std::string(tensor.name),
             "is no part of this architecture as Spillway computes it");
      }
    }
  }

 private:
  static std::string shape_text(const GgufTensor& tensor) {
    std::string text;
    for (uint32_t d = 0; d < tensor.rank; ++d) {
      text += (d == 0 ? "" : " x ") + std::to_string(tensor.dims[d]);
    }
    return text;
  }
  void fail(ErrorCode code, const std::string& name, const std::string& what) {
    if (!error_) error_ = Error{code, file_.name() + ": tensor " + in_quotes(name) + " " + what};
  }

  const GgufFile& file_;
  std::vector<const GgufTensor*> used_;
  std::optional<Error> error_;
};

// Some files store Q, K and V below each other as one matrix.
void find_query_key_value(Finder& finder, const ModelConfig& config, const std::string& prefix,
                          LayerTensors& layer) {
  const uint64_t width = config.embedding, q = config.query_width(), kv = config.kv_width();
  const Presence bias = config.architecture->qkv_bias;
  if (auto fused = finder.find(prefix + "attn_qkv.weight", width, q + 2 * kv)) {
    layer.query = tensor_rows(*fused, 0, q);
    layer.key = tensor_rows(*fused, q, kv);
    layer.value = tensor_rows(*fused, q + kv, kv);
    if (auto fused_bias = finder.find_if(bias, prefix + "attn_qkv.bias", q + 2 * kv)) {
      layer.query_bias = tensor_rows(*fused_bias, 0, q);
      layer.key_bias = tensor_rows(*fused_bias, q, kv);
      layer.value_bias = tensor_rows(*fused_bias, q + kv, kv);
    }
    return;
  }
  layer.query = finder.need(prefix + "attn_q.weight", width, q);
  layer.key = finder.need(prefix + "attn_k.weight", width, kv);
  layer.value = finder.need(prefix + "attn_v.weight", width, kv);
  layer.query_bias = finder.find_if(bias, prefix + "attn_q.bias", q);
  layer.key_bias = finder.find_if(bias, prefix + "attn_k.bias", kv);
  layer.value_bias = finder.find_if(bias, prefix + "attn_v.bias", kv);
}

LayerTensors find_layer(Finder& finder, const ModelConfig& config, uint32_t index) {
  const Architecture& arch = *config.architecture;
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const uint64_t width = config.embedding, mlp = config.feed_forward;
  const Presence head_norm = arch.qk_norm ? Presence::kRequired : Presence::kNone;
  const Presence post_norm = arch.post_norms ? Presence::kRequired : Presence::kNone;
  LayerTensors layer;
  layer.attention_norm = finder.need(prefix + "attn_norm.weight", width);
  find_query_key_value(finder, config, prefix, layer);
  layer.query_norm = finder.find_if(head_norm, prefix + "attn_q_norm.weight", config.head_dim);
  layer.key_norm = finder.find_if(head_norm, prefix + "attn_k_norm.weight", config.head_dim);
  layer.attention_output = finder.need(prefix + "attn_output.weight", config.query_width(), width);
  layer.attention_output_bias =
      finder.find_if(arch.qkv_bias == Presence::kNone ? Presence::kNone : Presence::kOptional,
                     prefix + "attn_output.bias", width);
  layer.attention_post_norm =
      finder.find_if(post_norm, prefix + "post_attention_norm.weight", width);
  layer.mlp_norm = finder.need(prefix + "ffn_norm.weight", width);
  layer.gate = finder.need(prefix + "ffn_gate.weight", width, mlp);
  layer.up = finder.need(prefix + "ffn_up.weight", width, mlp);
  layer.down = finder.need(prefix + "ffn_down.weight", mlp, width);
  layer.mlp_post_norm = finder.find_if(post_norm, prefix + "post_ffw_norm.weight", width);
  return layer;
}

}  // namespace

Result<ModelTensors> find_model_tensors(const GgufFile& file, const ModelConfig& config) {
  Finder finder(file);
  ModelTensors tensors;
  const uint64_t width = config.embedding, vocabulary = config.vocabulary;
  tensors.embedding = finder.need("token_embd.weight", width, vocabulary);
  tensors.output_norm = finder.need("output_norm.weight", width);
  tensors.output = finder.find("output.weight", width, vocabulary);
  tensors.rope_factors = finder.find("rope_freqs.weight", config.groups[0].rope.dims / 2);
  for (uint32_t i = 0; i < config.layers && !finder.error(); ++i) {
    tensors.layers.push_back(find_layer(finder, config, i));
  }
  if (!finder.error()) finder.refuse_the_rest();
  if (finder.error()) return *finder.error();
  if (tensors.rope_factors) {
    for (float factor : tensor_floats(*tensors.rope_factors)) {
      if (std::isfinite(factor) && factor > 0) continue;
      return Error{ErrorCode::kCorrupt,
                   file.name() + ": tensor 'rope_freqs.weight' holds a value that is not positive"};
    }
  }
  return tensors;
}

GgufTensor tensor_rows(const GgufTensor& tensor, uint64_t first, uint64_t count) {
  GgufTensor part = tensor;
  const bool is_vector = tensor.rank == 1;
  const uint64_t total = is_vector ? tensor.dims[0] : tensor.dims[1];
  const uint64_t row_bytes = tensor.data.size() / total;
  part.dims[is_vector ? 0 : 1] = count;
  part.data = tensor.data.subspan(first * row_bytes, count * row_bytes);
  return part;
}

std::vector<float> tensor_floats(const GgufTensor& tensor) {
  std::vector<float> values(tensor.elements());
  kernels::dequantize_row(tensor.type, tensor.data.data(), values.data(), values.size());
  return values;
}

}  // namespace spillway::model
