// What a library's products read: the twins' values, rounded to 16 bits.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/half.h"
#include "tests/kernels/cuda/guarded_rows.h"
#include "tests/kernels/cuda/matrix_on_gpu.h"
#include "tests/kernels/random_tensor.h"

namespace spillway::kernels::cuda {
namespace {

constexpr uint16_t kUntouched = 0xabcd;

uint16_t rounded(float value, HalfType type) {
  return type == HalfType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
}

class CudaUnpackTest : public testing::TestWithParam<TensorType> {};
INSTANTIATE_TEST_SUITE_P(Types, CudaUnpackTest,
                         testing::Values(TensorType::kF16, TensorType::kBf16, TensorType::kQ4_0,
                                         TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1,
                                         TensorType::kQ8_0, TensorType::kQ2_K, TensorType::kQ3_K,
                                         TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K,
                                         TensorType::kIq4Nl),
                         [](const auto& info) {
                           return std::string(tensor_type_name(info.param));
                         });

TEST_P(CudaUnpackTest, rows_from_anywhere_are_the_matrixs_rounded) {
  constexpr uint32_t kOutputs = 51;
  const uint32_t unit = block_elements(GetParam()) == 256 ? 256 : 32;
  for (const uint32_t inputs : {unit, 3 * unit}) {
    const auto file = random_rows(GetParam(), kOutputs, inputs, inputs);
    const auto w =
        PackedMatrix::pack(CpuLevel::kBaseline, GetParam(), file.data(), {kOutputs, inputs});
    const MatrixOnGpu on_gpu(w);
    std::vector<float> row(inputs);
    for (const auto& [first, outputs] : {std::pair{0u, kOutputs}, {16u, 17u}, {48u, 3u}}) {
      for (const HalfType type : {HalfType::kF16, HalfType::kBf16}) {
        std::vector<uint16_t> got(size_t{outputs} * inputs + 8, kUntouched);
        GpuUnderTest gpu;
        gpu.run(unpack, {.w = on_gpu.view(),
                         .first_output = first,
                         .outputs = outputs,
                         .to = got.data(),
                         .type = type});
        for (uint32_t output = 0; output < outputs; ++output) {
          w.dequantize(first + output, row.data());
          for (uint32_t i = 0; i < inputs; ++i) {
            ASSERT_EQ(got[size_t{output} * inputs + i], rounded(row[i], type))
                << "row " << first << " + " << output << ", input " << i;
          }
        }
        for (size_t i = got.size() - 8; i < got.size(); ++i) ASSERT_EQ(got[i], kUntouched);
      }
    }
  }
}

TEST(CudaNarrowTest, activations_are_rounded_and_what_f16_does_not_reach_is_its_largest) {
  for (const uint32_t rows : {0u, 1u, 3u}) {
    for (const uint32_t n : {32u, 255u, 256u, 288u}) {
      GuardedRows x(rows, n, n + 5, n);
      if (rows > 0) {
        x.at(0)[0] = kPoison, x.at(0)[1] = 1e6f, x.at(0)[2] = -65520.0f;
        x.at(0)[3] = -std::numeric_limits<float>::infinity();
      }
      for (const HalfType type : {HalfType::kF16, HalfType::kBf16}) {
        std::vector<uint16_t> got(size_t{rows} * n + 8, kUntouched);
        GpuUnderTest gpu;
        gpu.run(narrow, {.x = x.data(),
                         .to = got.data(),
                         .x_stride = x.stride(),
                         .rows = rows,
                         .n = n,
                         .type = type});
        for (size_t i = 0; i < size_t{rows} * n; ++i) {
          float value = x.at(static_cast<uint32_t>(i / n))[i % n];
          if (type == HalfType::kF16 && !std::isnan(value)) {
            value = std::clamp(value, -65504.0f, 65504.0f);
          }
          if (std::isnan(value)) {
            const float back = type == HalfType::kF16 ? f16_to_f32(got[i]) : bf16_to_f32(got[i]);
            ASSERT_TRUE(std::isnan(back));
          } else {
            ASSERT_EQ(got[i], rounded(value, type)) << i;
          }
        }
        for (size_t i = got.size() - 8; i < got.size(); ++i) ASSERT_EQ(got[i], kUntouched);
      }
    }
  }
}

}  // namespace
}  // namespace spillway::kernels::cuda
