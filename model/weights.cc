#include "model/weights.h"

#include <atomic>
#include <thread>

#include "model/rope.h"

namespace spillway::model {
namespace {

using kernels::PackedMatrix;

// Where one thread of the loader puts matrices, and for which kernels.
struct Packer {
  kernels::CpuLevel level;
  kernels::WeightArena arena;

  PackedMatrix pack(const GgufTensor& tensor) {
    return PackedMatrix::pack(level, tensor.type, tensor.data.data(),
                              {.outputs = static_cast<uint32_t>(tensor.dims[1]),
                               .inputs = static_cast<uint32_t>(tensor.dims[0])},
                              &arena);
  }
};

std::vector<float> floats(const std::optional<GgufTensor>& tensor) {
  return tensor ? tensor_floats(*tensor) : std::vector<float>();
}

LayerWeights load_layer(const LayerTensors& from, Packer& packer) {
  LayerWeights layer;
  layer.attention_norm = floats(from.attention_norm);
  layer.attention_post_norm = floats(from.attention_post_norm);
  layer.mlp_norm = floats(from.mlp_norm);
  layer.mlp_post_norm = floats(from.mlp_post_norm);
  layer.query_norm = floats(from.query_norm);
  layer.key_norm = floats(from.key_norm);
  layer.query_bias = floats(from.query_bias);
  layer.key_bias = floats(from.key_bias);
  layer.value_bias = floats(from.value_bias);
  layer.attention_output_bias = floats(from.attention_output_bias);
  layer.query = packer.pack(from.query);
  layer.key = packer.pack(from.key);
  layer.value = packer.pack(from.value);
  layer.attention_output = packer.pack(from.attention_output);
  layer.gate = packer.pack(from.gate);
  layer.up = packer.pack(from.up);
  layer.down = packer.pack(from.down);
  return layer;
}

}  // namespace

size_t Weights::bytes_per_pass() const {
  size_t bytes = output_matrix().bytes();
  for (const LayerWeights& layer : layers) {
    for (const PackedMatrix* matrix :
         {&layer.query, &layer.key, &layer.value, &layer.attention_output, &layer.gate, &layer.up,
          &layer.down}) {
      bytes += matrix->bytes();
    }
  }
  return bytes;
}

Weights load_weights(const ModelConfig& config, const ModelTensors& tensors,
                     kernels::CpuLevel level, uint32_t threads) {
  Weights weights;
  weights.tied = !tensors.output;
  weights.output_norm = tensor_floats(tensors.output_norm);
  const std::vector<float> factors = floats(tensors.rope_factors);
  for (const LayerGroup& group : config.groups) {
    weights.ropes.push_back(make_rope(group.rope, config.architecture->rope_order, factors));
  }
  weights.layers.resize(config.layers);
  // Items 0 and 1 are the two large matrices, the others the layers; each worker takes the next.
  std::atomic<uint32_t> next{0};
  auto work = [&] {
    Packer packer{level, {}};
    for (uint32_t i = next++; i < config.layers + 2; i = next++) {
      if (i == 0) {
        weights.embedding = packer.pack(tensors.embedding);
      } else if (i == 1) {
        if (tensors.output) weights.output = packer.pack(*tensors.output);
      } else {
        weights.layers[i - 2] = load_layer(tensors.layers[i - 2], packer);
      }
    }
  };
  std::vector<std::thread> helpers;
  for (uint32_t t = 1; t < threads; ++t) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  return weights;
}

}  // namespace spillway::model
