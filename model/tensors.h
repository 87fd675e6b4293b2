// A model's tensors by their role, found in the file and checked against its description: shapes
// agree, nothing needed is missing, and nothing is in the file that the forward pass would ignore.
// Views into the file: valid as long as it. Immutable; any thread.
#pragma once

#include <optional>
#include <vector>

#include "model/config.h"
#include "model/gguf.h"
#include "runtime/result.h"

namespace spillway::model {

// Shapes are (inputs, outputs) as in the file: dims[0] is contiguous.
struct LayerTensors {
  GgufTensor attention_norm;    // (embedding)
  GgufTensor query;             // (embedding, query_width)
  GgufTensor key;               // (embedding, kv_width)
  GgufTensor value;             // (embedding, kv_width)
  GgufTensor attention_output;  // (query_width, embedding)
  std::optional<GgufTensor> query_bias, key_bias, value_bias, attention_output_bias;
  std::optional<GgufTensor> query_norm, key_norm;  // (head_dim)
  std::optional<GgufTensor> attention_post_norm;   // (embedding)
  GgufTensor mlp_norm;                             // (embedding)
  GgufTensor gate, up;                             // (embedding, feed_forward)
  GgufTensor down;                                 // (feed_forward, embedding)
  std::optional<GgufTensor> mlp_post_norm;         // (embedding)
};

struct ModelTensors {
  GgufTensor embedding;                    // (embedding, vocabulary)
  GgufTensor output_norm;                  // (embedding)
  std::optional<GgufTensor> output;        // (embedding, vocabulary); none: tied to `embedding`
  std::optional<GgufTensor> rope_factors;  // (rope dims / 2): Llama 3
  std::vector<LayerTensors> layers;

  const GgufTensor& output_or_embedding() const { return output ? *output : embedding; }
};

// The error names the tensor.
Result<ModelTensors> find_model_tensors(const GgufFile& file, const ModelConfig& config);

// Rows [first, first + count) of a matrix, or elements of a vector.
GgufTensor tensor_rows(const GgufTensor& tensor, uint64_t first, uint64_t count);

// A tensor's values in f32.
std::vector<float> tensor_floats(const GgufTensor& tensor);

}  // namespace spillway::model
