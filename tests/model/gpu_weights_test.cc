// A model's weights in a GPU's memory are byte for byte those of the host, however small the pinned
// buffers that they pass through.
#include "model/gpu_weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cpu_device.h"
#include "model/config.h"
#include "tests/model/tiny_models.h"

namespace spillway::model {
namespace {

void expect_same(const kernels::cuda::DeviceMatrix& got, const kernels::PackedMatrix& expected) {
  ASSERT_EQ(got.panel_bytes * expected.panels(), expected.bytes());
  EXPECT_EQ(std::memcmp(got.panels, expected.panel(0), expected.bytes()), 0);
}

void expect_same(const float* got, const std::vector<float>& expected) {
  ASSERT_EQ(got == nullptr, expected.empty());
  if (got == nullptr) return;
  EXPECT_EQ(std::memcmp(got, expected.data(), expected.size() * sizeof(float)), 0);
}

TEST(GpuWeights, are_those_of_the_host_whatever_the_buffers) {
  for (const char* name : {"gemma3_soft_caps", "qwen2_q8_0"}) {
    const TinyModel model(name);
    const ModelConfig config = read_model_config(model.file).value();
    const ModelTensors tensors = find_model_tensors(model.file, config).value();
    const Weights weights = load_weights(config, tensors, kernels::CpuLevel::kBaseline, 1);
    // Its copies run in a thread of their own, so that a buffer may be filled too early.
    const auto device = kernels::make_cpu_device({.threads = 1, .level = "test", .pin = false});
    for (const size_t half_bytes : {size_t{100}, size_t{4096}, size_t{16} << 20}) {
      SCOPED_TRACE(testing::Message() << name << ", " << half_bytes);
      const GpuWeights got = upload_weights(weights, *device, half_bytes).value();
      expect_same(got.embedding, weights.embedding);
      expect_same(got.output, weights.output_matrix());
      expect_same(got.output_norm, weights.output_norm);
      ASSERT_EQ(got.layers.size(), weights.layers.size());
      for (size_t i = 0; i < got.layers.size(); ++i) {
        const GpuLayerWeights& layer = got.layers[i];
        const LayerWeights& from = weights.layers[i];
        expect_same(layer.attention_norm, from.attention_norm);
        expect_same(layer.mlp_post_norm, from.mlp_post_norm);
        expect_same(layer.query_norm, from.query_norm);
        expect_same(layer.value_bias, from.value_bias);
        expect_same(layer.query, from.query);
        expect_same(layer.attention_output, from.attention_output);
        expect_same(layer.down, from.down);
      }
    }
  }
}

}  // namespace
}  // namespace spillway::model
