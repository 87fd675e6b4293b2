#include "model/gpu_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "kernels/block_until_done.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

using kernels::PackedMatrix;
using kernels::cuda::DeviceMatrix;

// Fills a block of device memory from front to back by way of pinned memory: what lies elsewhere
// CUDA would copy there first, and wait for it. While one half travels the other is filled.
class Filler {
 public:
  // REQUIRES: half_bytes > 0.
  static Result<std::unique_ptr<Filler>> create(kernels::Device& device, std::byte* to,
                                                size_t half_bytes) {
    auto filler = std::unique_ptr<Filler>(new Filler(device, to));
    for (Half& half : filler->halves_) {
      auto memory = device.allocate_host(half_bytes);
      if (!memory) return memory.error();
      half.memory = *std::move(memory);
      half.sent = device.make_event();
    }
    return filler;
  }

  // REQUIRES: `at` is not before the end of what was put before.
  void put(size_t at, const void* from, size_t bytes) {
    const auto* next = static_cast<const std::byte*>(from);
    while (bytes > 0) {
      CHECK(at >= begin_ + filled_);
      if (at - begin_ >= half().memory.bytes) send(at);
      const size_t within = at - begin_;
      const size_t count = std::min(bytes, half().memory.bytes - within);
      std::memcpy(half().memory.data + within, next, count);
      filled_ = within + count;
      at += count;
      next += count;
      bytes -= count;
    }
  }

  // Waits until all is there.
  void finish() {
    send(begin_);
    for (Half& half : halves_) kernels::block_until_done(*half.sent);
  }

 private:
  struct Half {
    kernels::DeviceMemory memory;
    std::unique_ptr<kernels::Event> sent;
  };

  Filler(kernels::Device& device, std::byte* to) : stream_(device.compute()), to_(to) {}
  Half& half() { return halves_[current_]; }

  // What is filled goes; what comes next begins at `begin`.
  void send(size_t begin) {
    if (filled_ > 0) {
      stream_.copy(to_ + begin_, half().memory.data, filled_);
      stream_.record(*half().sent);
      current_ = 1 - current_;
      kernels::block_until_done(*half().sent);
    }
    begin_ = begin;
    filled_ = 0;
  }

  kernels::Stream& stream_;
  std::byte* const to_;
  std::array<Half, 2> halves_;
  size_t current_ = 0;  // half, which is for what begins at begin_
  size_t begin_ = 0;
  size_t filled_ = 0;
};

// Gives each array its place in one block of memory, and puts it there. Without memory it counts.
class Placer {
 public:
  Placer() = default;
  Placer(const std::byte* memory, Filler& filler) : memory_(memory), filler_(&filler) {}

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
    if (filler_ == nullptr) return nullptr;
    filler_->put(at, from, bytes);
    return memory_ + at;
  }

  const std::byte* memory_ = nullptr;
  Filler* filler_ = nullptr;
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

Result<GpuWeights> upload_weights(const Weights& weights, kernels::Device& device,
                                  size_t half_bytes) {
  Placer counter;
  static_cast<void>(place_all(weights, counter));
  auto memory = device.allocate(counter.bytes());
  if (!memory) {
    return Error{memory.error().code, "the weights take " + std::to_string(counter.bytes() >> 20) +
                                          " MiB of the device's memory: " + memory.error().message};
  }
  auto filler = Filler::create(device, memory->data, std::min(half_bytes, counter.bytes()));
  if (!filler) return filler.error();
  Placer placer(memory->data, **filler);
  GpuWeights out = place_all(weights, placer);
  (*filler)->finish();
  if (const Error* const failure = device.failure()) return *failure;
  out.memory = *std::move(memory);
  return out;
}

}  // namespace spillway::model
