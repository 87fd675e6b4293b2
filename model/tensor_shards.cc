#include "model/tensor_shards.h"

#include <cstring>

namespace spillway::model {
namespace {

// Outputs of a matrix.
GgufTensor outputs(const GgufTensor& tensor, const Range& range) {
  const size_t row_bytes = tensor.data.size() / tensor.dims[1];
  GgufTensor part = tensor;
  part.dims[1] = range.count();
  part.data = tensor.data.subspan(range.first * row_bytes, range.count() * row_bytes);
  return part;
}

Range elements_of(const Range& heads, uint32_t head_dim) {
  return {heads.first * head_dim, heads.end * head_dim};
}

void cut_bias(std::optional<GgufTensor>& bias, const Range& range) {
  if (bias) bias = tensor_rows(*bias, range.first, range.count());
}

// Inputs of a matrix: of every row a part, copied. row_bytes() CHECKs whole blocks.
GgufTensor inputs(const GgufTensor& tensor, const Range& range, TensorShards& shards) {
  if (range.count() == tensor.dims[0]) return tensor;
  const size_t row_bytes = kernels::row_bytes(tensor.type, tensor.dims[0]);
  const size_t skipped = kernels::row_bytes(tensor.type, range.first);
  const size_t taken = kernels::row_bytes(tensor.type, range.count());
  GgufTensor part = tensor;
  part.dims[0] = range.count();
  auto& copy = shards.copies.emplace_back(new std::byte[taken * tensor.dims[1]]);
  for (uint64_t row = 0; row < tensor.dims[1]; ++row) {
    std::memcpy(copy.get() + row * taken, tensor.data.data() + row * row_bytes + skipped, taken);
  }
  part.data = {copy.get(), taken * tensor.dims[1]};
  return part;
}

}  // namespace

TensorShards tensors_of_rank(const ModelTensors& tensors, const ModelConfig& config,
                             const RankShare& share) {
  TensorShards shards;
  ModelTensors& part = shards.tensors;
  part = tensors;
  const bool tied = !tensors.output;
  const Range none{};
  const bool has_embedding = share.embeds || (share.draws && tied);
  part.embedding = outputs(tensors.embedding, has_embedding ? share.vocabulary : none);
  if (!tied) part.output = outputs(*tensors.output, share.draws ? share.vocabulary : none);
  part.layers.assign(tensors.layers.begin() + share.layers.first,
                     tensors.layers.begin() + share.layers.end);
  const Range query = elements_of(share.heads, config.head_dim);
  const Range key = elements_of(share.kv_heads, config.head_dim);
  for (LayerTensors& layer : part.layers) {
    layer.query = outputs(layer.query, query);
    layer.key = outputs(layer.key, key);
    layer.value = outputs(layer.value, key);
    cut_bias(layer.query_bias, query);
    cut_bias(layer.key_bias, key);
    cut_bias(layer.value_bias, key);
    layer.attention_output = inputs(layer.attention_output, query, shards);
    layer.gate = outputs(layer.gate, share.feed_forward);
    layer.up = outputs(layer.up, share.feed_forward);
    layer.down = inputs(layer.down, share.feed_forward, shards);
  }
  return shards;
}

}  // namespace spillway::model
