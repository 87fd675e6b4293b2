#include "model/gpu_weights.h"

#include <string>
#include <utility>

#include "kernels/block_until_done.h"

namespace spillway::model {
namespace {

using kernels::PackedMatrix;
using kernels::cuda::DeviceMatrix;

// Gives each array its place in one block of memory, and copies it there. Without memory it counts.
class Placer {
 public:
  Placer() = default;
  Placer(std::byte* memory, kernels::Stream& stream) : memory_(memory), stream_(&stream) {}

  const float* put(const std::vector<float>& floats) {
    if (floats.empty()) return nullptr;
    return reinterpret_cast<const float*>(put(floats.data(), floats.size() * sizeof(float)));
  }
  DeviceMatrix put(const PackedMatrix& matrix) {
    return {.type = matrix.type(),
            .panels = put(matrix.panel(0), matrix.bytes()),
            .panel_bytes = matrix.bytes() / matrix.panels(),
            .outputs = matrix.shape().outputs,
            .inputs = matrix.shape().inputs};
  }
  size_t bytes() const { return used_; }

 private:
  static constexpr size_t kAlignment = 256;

  const std::byte* put(const void* from, size_t bytes) {
    const size_t at = used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (stream_ == nullptr) return nullptr;
    stream_->copy(memory_ + at, from, bytes);
    return memory_ + at;
  }

  std::byte* memory_ = nullptr;
  kernels::Stream* stream_ = nullptr;
  size_t used_ = 0;
};

GpuLayerWeights place_layer(const LayerWeights& from, Placer& placer) {
  return {.attention_norm = placer.put(from.attention_norm),
          .attention_post_norm = placer.put(from.attention_post_norm),
          .mlp_norm = placer.put(from.mlp_norm),
          .mlp_post_norm = placer.put(from.mlp_post_norm),
          .query_norm = placer.put(from.query_norm),
          .key_norm = placer.put(from.key_norm),
          .query_bias = placer.put(from.query_bias),
          .key_bias = placer.put(from.key_bias),
          .value_bias = placer.put(from.value_bias),
          .attention_output_bias = placer.put(from.attention_output_bias),
          .query = placer.put(from.query),
          .key = placer.put(from.key),
          .value = placer.put(from.value),
          .attention_output = placer.put(from.attention_output),
          .gate = placer.put(from.gate),
          .up = placer.put(from.up),
          .down = placer.put(from.down)};
}

GpuWeights place_all(const Weights& weights, Placer& placer) {
  GpuWeights out;
  out.embedding = placer.put(weights.embedding);
  out.output = weights.tied ? out.embedding : placer.put(weights.output);
  out.output_norm = placer.put(weights.output_norm);
  for (const LayerWeights& layer : weights.layers) out.layers.push_back(place_layer(layer, placer));
  return out;
}

}  // namespace

Result<GpuWeights> upload_weights(const Weights& weights, kernels::Device& device) {
  Placer counter;
  static_cast<void>(place_all(weights, counter));
  auto memory = device.allocate(counter.bytes());
  if (!memory) {
    return Error{memory.error().code, "the weights take " + std::to_string(counter.bytes() >> 20) +
                                          " MiB of the device's memory: " + memory.error().message};
  }
  Placer placer(memory->data, device.compute());
  GpuWeights out = place_all(weights, placer);
  out.memory = *std::move(memory);
  const auto copied = device.make_event();
  device.compute().record(*copied);
  kernels::block_until_done(*copied);
  return out;
}

}  // namespace spillway::model
