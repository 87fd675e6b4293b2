// Quantised activations and matrix products of a GPU: the bits of their twins for every type and
// number of rows.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/cuda/matmul_fixture.h"

namespace spillway::kernels::cuda {
namespace {

TEST(CudaMatmulTest, activations_round_as_on_the_cpu) {
  for (const uint32_t rows : {0u, 1u, 3u}) {
    for (const uint32_t inputs : {32u, 96u, 160u}) {
      GuardedRows x(rows, inputs, inputs + 3, inputs);
      if (rows == 3) {
        x.at(0)[5] = kPoison;
        x.at(1)[5] = std::numeric_limits<float>::infinity();
        for (uint32_t i = 0; i < 32; ++i) x.at(2)[i] = i == 3 ? 1e-31f : 0.0f;
        for (uint32_t i = 32; i < inputs; ++i) x.at(2)[i] = static_cast<float>(i % 32) - 15.5f;
      }
      const RoundedRows got = rounded_on_gpu(x);
      const ActivationBuffer buffer(CpuLevel::kBaseline, size_t{rows} * inputs + 32);
      const Activations expected = buffer.view(x.data(), x.stride(), rows, inputs);
      quantize_rows(expected, 0, rows);
      for (size_t i = 0; i < got.values.size(); ++i) ASSERT_EQ(got.values[i], expected.values[i]);
      for (size_t b = 0; b < got.scales.size(); ++b) {
        ASSERT_TRUE(same_value(got.scales[b], expected.scales[b])) << b;
        ASSERT_TRUE(same_value(got.scaled_sums[b], expected.scaled_sums[b])) << b;
        for (size_t h = 2 * b; h < 2 * b + 2; ++h) {
          ASSERT_TRUE(same_value(got.half_scaled_sums[h], expected.half_scaled_sums[h])) << h;
        }
      }
    }
  }
}

GuardedRows product_on_gpu(const PackedMatrix& w, GuardedRows& x) {
  const uint32_t outputs = w.shape().outputs;
  GuardedRows y(x.rows(), outputs, outputs + 5, 0);
  y.poison();
  RoundedRows rounded = rounded_on_gpu(x);
  const MatrixOnGpu on_gpu(w);
  GpuUnderTest gpu;
  gpu.run(matmul, {.w = on_gpu.view(), .x = rounded.view(), .y = y.data(), .y_stride = y.stride()});
  return y;
}

TEST_P(CudaMatmulTypeTest, every_number_of_rows_gives_the_bits_of_the_plain_twin) {
  const uint32_t unit = block_elements(GetParam());
  for (const uint32_t outputs : {1u, 35u}) {
    for (const uint32_t blocks : {1u, 1280 / unit}) {
      const PackedMatrix w = random_matrix(outputs, unit * blocks);
      for (const uint32_t rows : {0u, 1u, 7u, 8u, 9u}) {
        if (outputs == 1 && rows > 1) continue;
        SCOPED_TRACE(testing::Message()
                     << outputs << " outputs, " << blocks << " blocks, " << rows);
        GuardedRows x(rows, w.shape().inputs, w.shape().inputs + 3, rows);
        product_on_gpu(w, x).expect_same(expected(w, x));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CudaMatmulTypeTest, a_row_with_a_nan_is_nan_and_leaves_the_others_alone) {
  const PackedMatrix w = random_matrix(17, 256);
  GuardedRows x(3, 256, 256, 1);
  const GuardedRows clean = product_on_gpu(w, x);
  x.at(1)[100] = kPoison;
  const GuardedRows y = product_on_gpu(w, x);
  for (uint32_t output = 0; output < 17; ++output) {
    EXPECT_EQ(y.at(0)[output], clean.at(0)[output]);
    EXPECT_TRUE(std::isnan(y.at(1)[output]));
    EXPECT_EQ(y.at(2)[output], clean.at(2)[output]);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaMatmulTypeTest, testing::ValuesIn(kQuantisedTypes),
                         [](const auto& type) { return tensor_type_name(type.param); });

class CudaMatmulFloatsTest : public CudaMatmulTypeTest {};

TEST_P(CudaMatmulFloatsTest, every_number_of_rows_and_inputs_gives_the_bits_of_the_plain_twin) {
  for (const uint32_t outputs : {1u, 35u}) {
    for (const uint32_t inputs : {1u, 127u, 128u, 129u, 256u, 257u, 600u}) {
      const PackedMatrix w = random_matrix(outputs, inputs);
      for (const uint32_t rows : {0u, 1u, 9u}) {
        SCOPED_TRACE(testing::Message()
                     << outputs << " outputs, " << inputs << " inputs, " << rows);
        GuardedRows x(rows, inputs, inputs + 3, rows);
        GuardedRows y(rows, outputs, outputs + 5, 0);
        GuardedRows twin = y.poison();
        const Activations view{
            .level = level_, .rows = rows, .inputs = inputs, .x = x.data(), .x_stride = x.stride()};
        matmul_reference(w, view, 0, outputs, twin.data(), twin.stride());
        const MatrixOnGpu on_gpu(w);
        GpuUnderTest gpu;
        gpu.run(matmul_floats, {.w = on_gpu.view(),
                                .x = x.data(),
                                .y = y.data(),
                                .x_stride = x.stride(),
                                .y_stride = y.stride(),
                                .rows = rows});
        y.expect_same(twin);
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaMatmulFloatsTest,
                         testing::Values(TensorType::kF32, TensorType::kF16, TensorType::kBf16),
                         [](const auto& type) { return tensor_type_name(type.param); });

}  // namespace
}  // namespace spillway::kernels::cuda
