// The model on a GPU whose products of many rows a library computes (--no-batch-invariant; in
// gpu_model_test a simulated one): near the CPU's, and apart from pages of the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/library_products.h"
#include "tests/model/gpu_harness.h"
#include "tests/model/tiny_models.h"

namespace spillway::model {
namespace {

using kernels::cuda::LibraryProducts;

// Of log-probabilities, where the CPU's are exact: what 16 bits may lose.
constexpr float kTolerance = 0.01f;

std::shared_ptr<LibraryProducts> make_products(CUstream_st* stream) {
  auto made = kernels::cuda::make_library_products(
      stream, {.quantized_rows_min = 2, .float_rows_min = 2, .weight_bytes = 40'000});
  if (!made) std::fprintf(stderr, "%s\n", made.error().message.c_str());
  return made ? std::shared_ptr<LibraryProducts>(*std::move(made)) : nullptr;
}

bool has_library() {
  kernels::cuda::StreamAtOnce stream;
  return make_products(stream.get()) != nullptr;
}

GpuSetting by_library(GpuSetting setting = {}) {
  setting.make_products = make_products;
  return setting;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return INFINITY;
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

// Log-probabilities of the logits that the model's maker computed in f32.
std::vector<float> exact_log_probabilities(const TinyModel& model) {
  std::vector<float> out = model.logits;
  const size_t vocabulary = out.size() / model.tokens.size();
  for (size_t at = 0; at < out.size(); at += vocabulary) {
    const auto first = out.begin() + static_cast<std::ptrdiff_t>(at);
    const auto last = first + static_cast<std::ptrdiff_t>(vocabulary);
    double sum = 0;
    std::for_each(first, last, [&](float logit) { sum += std::exp(double{logit}); });
    std::for_each(first, last,
                  [&](float& logit) { logit = static_cast<float>(double{logit} - std::log(sum)); });
  }
  return out;
}

class GpuProductsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    skip_without_fma();
    if (has_library()) return;
#if defined(SPILLWAY_CUDA_EMULATOR)
    FAIL() << "the simulated library is always there";
#else
    GTEST_SKIP() << "there is no cuBLASLt here";
#endif
  }
};
INSTANTIATE_TEST_SUITE_P(Models, GpuProductsTest,
                         testing::Values("gemma3_soft_caps", "llama_q4_1", "qwen2_q8_0"),
                         [](const auto& info) { return info.param; });

// The CPU rounds activations of quantised products to int8, which loses more than 16 bits do.
TEST_P(GpuProductsTest, answers_are_as_near_as_16_bits_are_and_pages_are_kept_apart) {
  const TinyModel model(GetParam());
  RunnerHarness cpu(model.file, {});
  GpuHarness gpu(model.file, {}, by_library());
  EXPECT_NE(gpu.runs.runner().shape().fingerprint, cpu.runner().shape().fingerprint);
  const std::vector<float> expected = cpu.log_probabilities(model.tokens, {45});
  const std::vector<float> got = gpu.runs.log_probabilities(model.tokens, {30, 15});
  EXPECT_NE(got, expected) << "our kernels computed it";
  const std::vector<float> exact = exact_log_probabilities(model);
  EXPECT_LT(largest_difference(got, exact),
            std::max(kTolerance, largest_difference(expected, exact)));
}

// Behind gates our own kernels compute all, to the bit.
TEST_P(GpuProductsTest, a_prefix_that_comes_layer_by_layer_is_left_to_our_kernels) {
  const TinyModel model(GetParam());
  RunnerHarness cpu(model.file, {});
  const std::vector<float> expected = cpu.log_probabilities(model.tokens, {45});
  GpuHarness gpu(model.file, {.by_layers = true}, by_library());
  EXPECT_EQ(gpu.runs.log_probabilities(model.tokens, {16, 29}), expected);
}

}  // namespace
}  // namespace spillway::model
