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

TEST(PackedMatrixTest, matrices_of_one_arena_stay_apart_and_outlive_it) {
  const auto first_file = random_rows(TensorType::kQ5_0, 33, 96, 3);
  const auto second_file = random_rows(TensorType::kQ5_0, 17, 96, 4);
  PackedMatrix first;
  PackedMatrix second;
  {
    WeightArena arena;
    first = PackedMatrix::pack(CpuLevel::kBaseline, TensorType::kQ5_0, first_file.data(), {33, 96},
                               &arena);
    second = PackedMatrix::pack(CpuLevel::kBaseline, TensorType::kQ5_0, second_file.data(),
                                {17, 96}, &arena);
  }
  std::vector<float> expected(96);
  std::vector<float> got(96);
  dequantize_row(TensorType::kQ5_0, first_file.data() + 32 * 66, expected.data(), 96);
  first.dequantize(32, got.data());
  EXPECT_EQ(got, expected);
  dequantize_row(TensorType::kQ5_0, second_file.data(), expected.data(), 96);
  second.dequantize(0, got.data());
  EXPECT_EQ(got, expected);
}

TEST(WeightArenaTest, memory_is_zeroed_aligned_and_never_given_twice) {
  WeightArena arena;
  std::vector<std::shared_ptr<std::byte>> taken;
  for (const size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{40} << 20}) {
    taken.push_back(arena.take(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(taken.back().get()) % kVectorBytes, 0u);
    for (const size_t at : {size_t{0}, bytes / 2, bytes - 1}) {
      EXPECT_EQ(taken.back().get()[at], std::byte{0});
    }
    std::memset(taken.back().get(), 1, bytes);
  }
}

TEST(PackedMatrixTest, a_matrix_without_rows_packs_to_nothing) {
  const auto packed = PackedMatrix::pack(CpuLevel::kBaseline, TensorType::kQ4_0, nullptr, {0, 32});
  EXPECT_EQ(packed.bytes(), 0u);
}

}  // namespace
}  // namespace spillway::kernels
