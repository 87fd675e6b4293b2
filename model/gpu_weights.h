// A model's weights in a GPU's memory, as its operators read them: the panels of weights.h as they
// are, and vectors. One block of memory, owned here; immutable.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/operators.h"
#include "kernels/device.h"
#include "model/weights.h"
#include "runtime/result.h"

namespace spillway::model {

// Null vectors: the architecture has none.
struct GpuLayerWeights {
  const float* attention_norm = nullptr;         // (embedding)
  const float* attention_post_norm = nullptr;    // (embedding)
  const float* mlp_norm = nullptr;               // (embedding)
  const float* mlp_post_norm = nullptr;          // (embedding)
  const float* query_norm = nullptr;             // (head_dim)
  const float* key_norm = nullptr;               // (head_dim)
  const float* query_bias = nullptr;             // (query_width)
  const float* key_bias = nullptr;               // (kv_width)
  const float* value_bias = nullptr;             // (kv_width)
  const float* attention_output_bias = nullptr;  // (embedding)
  kernels::cuda::DeviceMatrix query, key, value, attention_output, gate, up, down;
};

struct GpuWeights {
  kernels::DeviceMemory memory;
  kernels::cuda::DeviceMatrix embedding, output;
  const float* output_norm = nullptr;  // (embedding)
  std::vector<GpuLayerWeights> layers;
};

// Copies on the compute stream, by way of two pinned buffers of `half_bytes`, and waits for that:
// before the engine runs. `weights` is needed no longer afterwards. Fails where the device has too
// little memory, or has ended.
Result<GpuWeights> upload_weights(const Weights& weights, kernels::Device& device,
                                  size_t half_bytes = size_t{16} << 20);

}  // namespace spillway::model
