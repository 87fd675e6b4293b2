// A model's weights as the kernels read them: matrices repacked once at load, vectors in f32.
// Owns its memory and needs the file no longer. Immutable; any thread.
#pragma once

#include <vector>

#include "kernels/cpu_level.h"
#include "kernels/matrix.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/tensors.h"

namespace spillway::model {

// Empty vectors and matrices: the architecture has none.
struct LayerWeights {
  std::vector<float> attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;  // (embedding)
  std::vector<float> query_norm, key_norm;                                          // (head_dim)
  std::vector<float> query_bias, key_bias, value_bias, attention_output_bias;
  kernels::PackedMatrix query, key, value, attention_output, gate, up, down;
};

struct Weights {
  kernels::PackedMatrix embedding;
  kernels::PackedMatrix output;  // unused where tied to the embedding
  bool tied = false;
  std::vector<float> output_norm;
  std::vector<kernels::RopeTable> ropes;  // (group)
  std::vector<LayerWeights> layers;

  const kernels::PackedMatrix& output_matrix() const { return tied ? embedding : output; }
  // Bytes that a token's forward pass reads, all of the matrices but the embedding's rows.
  size_t bytes_per_pass() const;
};

// Repacks with `threads` threads; takes about as long as reading the file.
Weights load_weights(const ModelConfig& config, const ModelTensors& tensors,
                     kernels::CpuLevel level, uint32_t threads);

}  // namespace spillway::model
