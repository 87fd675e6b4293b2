#include "kernels/matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/dequantize.h"
#include "tests/kernels/random_tensor.h"

namespace spillway::kernels {
namespace {

TEST(PackedMatrixTest, rows_of_the_packed_form_are_those_of_the_file) {
  for (const TensorType type : kTensorTypes) {
    SCOPED_TRACE(tensor_type_name(type));
    const uint32_t inputs = block_elements(type) == 256 ? 768 : 160;
    for (const uint32_t outputs : {1u, 15u, 16u, 17u, 33u}) {
      const auto file = random_rows(type, outputs, inputs, 1);
      const auto packed =
          PackedMatrix::pack(CpuLevel::kBaseline, type, file.data(), {outputs, inputs});
      for (uint32_t row = 0; row < outputs; ++row) {
        std::vector<float> expected(inputs);
        std::vector<float> got(inputs + 1, 7.0f);
        dequantize_row(type, file.data() + row * row_bytes(type, inputs), expected.data(), inputs);
        packed.dequantize(row, got.data());
        ASSERT_EQ(std::memcmp(got.data(), expected.data(), inputs * sizeof(float)), 0) << row;
        ASSERT_EQ(got.back(), 7.0f);
      }
    }
  }
}

TEST(PackedMatrixTest, resident_size_stays_within_4_percent_of_the_file) {
  for (const TensorType type : kTensorTypes) {
    SCOPED_TRACE(tensor_type_name(type));
    const auto file = random_rows(type, 64, 2048, 2);
    const auto packed = PackedMatrix::pack(CpuLevel::kBaseline, type, file.data(), {64, 2048});
    EXPECT_LE(packed.bytes(), file.size() * 104 / 100);
    EXPECT_GE(packed.bytes(), file.size());
  }
}

TEST(PackedMatrixTest, a_matrix_without_rows_packs_to_nothing) {
  const auto packed = PackedMatrix::pack(CpuLevel::kBaseline, TensorType::kQ4_0, nullptr, {0, 32});
  EXPECT_EQ(packed.bytes(), 0u);
}

}  // namespace
}  // namespace spillway::kernels
