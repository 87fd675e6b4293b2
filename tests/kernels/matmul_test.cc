#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/dequantize.h"
#include "tests/kernels/random_tensor.h"
#include "tests/kernels/test_team.h"

namespace spillway::kernels {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
constexpr float kUntouched = 12345.0f;
constexpr size_t kPad = 5;  // floats of poison behind every row of x, of canaries behind those of y

// y with canaries after each row, computed by `workers`.
std::vector<float> product(const PackedMatrix& w, const std::vector<float>& x, uint32_t rows,
                           uint32_t workers) {
  const auto [outputs, inputs] = w.shape();
  const size_t y_stride = outputs + kPad;
  std::vector<float> y(rows * y_stride, kUntouched);
  const ActivationBuffer buffer(w.level(), size_t{rows} * inputs);
  const Activations view = buffer.view(x.data(), inputs + kPad, rows, inputs);
  run_team(workers, [&](Team& team) {
    if (w.format().is_quantized()) {
      quantize(team, view);
      team.barrier();
    }
    matmul(team, w, view, y.data(), y_stride);
  });
  return y;
}

std::vector<float> reference(const PackedMatrix& w, const std::vector<float>& x, uint32_t rows) {
  const auto [outputs, inputs] = w.shape();
  std::vector<float> y(rows * (outputs + kPad), kUntouched);
  const ActivationBuffer buffer(CpuLevel::kBaseline, size_t{rows} * inputs);
  const Activations view = buffer.view(x.data(), inputs + kPad, rows, inputs);
  if (w.format().is_quantized()) quantize_rows(view, 0, rows);
  matmul_reference(w, view, 0, outputs, y.data(), outputs + kPad);
  return y;
}

// Rows of normal values of different sizes, NaN behind each.
std::vector<float> padded_rows(uint32_t rows, uint32_t inputs, uint32_t seed) {
  const auto values = random_floats(size_t{rows} * inputs, seed);
  std::vector<float> out(rows * (inputs + kPad), kPoison);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t k = 0; k < inputs; ++k) {
      out[row * (inputs + kPad) + k] = values[size_t{row} * inputs + k] * std::exp2(row % 7 - 3.0f);
    }
  }
  return out;
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
        << "element " << i << ": " << got[i] << " and " << expected[i];
  }
}

class MatmulTest : public testing::TestWithParam<std::tuple<TensorType, CpuLevel>> {};

TEST_P(MatmulTest, every_size_and_team_gives_the_bits_of_the_plain_twin) {
  const auto [type, level] = GetParam();
  const uint32_t block = std::max(block_elements(type), 32u);
  for (const uint32_t outputs : {1u, 35u, 80u}) {
    for (const uint32_t blocks : {1u, 3u}) {
      const uint32_t inputs = block * blocks;
      const auto file = random_rows(type, outputs, inputs, outputs * 7 + blocks);
      const auto w = PackedMatrix::pack(level, type, file.data(), {outputs, inputs});
      for (const uint32_t rows : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 11u, 12u, 13u, 32u}) {
        const auto x = padded_rows(rows, inputs, rows);
        const auto expected = reference(w, x, rows);
        for (const uint32_t workers : {1u, 2u}) {
          SCOPED_TRACE(testing::Message() << "outputs " << outputs << " inputs " << inputs
                                          << " rows " << rows << " workers " << workers);
          expect_same_bits(product(w, x, rows, workers), expected);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Dot products at their largest: levels that add products in 16 bits must stop in time.
TEST_P(MatmulTest, rows_of_largest_values_give_the_bits_of_the_plain_twin) {
  const auto [type, level] = GetParam();
  const uint32_t inputs = 512;
  const uint32_t outputs = 64;
  const auto file = random_rows(type, outputs, inputs, 51);
  const auto w = PackedMatrix::pack(level, type, file.data(), {outputs, inputs});
  for (const uint32_t rows : {1u, 10u}) {
    std::vector<float> x(rows * (inputs + kPad), kPoison);
    for (uint32_t row = 0; row < rows; ++row) {  // 127, -127, or both in turn
      for (uint32_t k = 0; k < inputs; ++k) {
        const bool negative = row % 3 == 1 || (row % 3 == 2 && k % 2 == 1);
        x[row * (inputs + kPad) + k] = negative ? -2.0f : 2.0f;
      }
    }
    SCOPED_TRACE(rows);
    expect_same_bits(product(w, x, rows, 1), reference(w, x, rows));
  }
}

TEST_P(MatmulTest, a_row_alone_and_among_512_has_the_same_bits) {
  const auto [type, level] = GetParam();
  const uint32_t inputs = 1280;
  const uint32_t outputs = 67;
  const uint32_t rows = 512;
  const auto file = random_rows(type, outputs, inputs, 11);
  const auto w = PackedMatrix::pack(level, type, file.data(), {outputs, inputs});
  const auto x = padded_rows(rows, inputs, 12);
  const auto all = product(w, x, rows, 2);
  for (const uint32_t row : {0u, 1u, 255u, 506u, 511u}) {
    SCOPED_TRACE(row);
    const auto begin = x.begin() + row * (inputs + kPad);
    const std::vector<float> alone(begin, begin + inputs + kPad);
    const auto y = product(w, alone, 1, 1);
    const auto at = all.begin() + row * (outputs + kPad);
    expect_same_bits(y, std::vector<float>(at, at + outputs + kPad));
    expect_same_bits(y, reference(w, alone, 1));
  }
}

// The twin itself against double precision on dequantised weights: int8 activations cost little.
TEST_P(MatmulTest, products_are_close_to_exact_ones) {
  const auto [type, level] = GetParam();
  const uint32_t inputs = 1024;
  const uint32_t outputs = 48;
  const auto file = random_rows(type, outputs, inputs, 21);
  const auto w = PackedMatrix::pack(level, type, file.data(), {outputs, inputs});
  const auto x = padded_rows(4, inputs, 22);
  const auto y = product(w, x, 4, 1);
  std::vector<float> weights(inputs);
  for (uint32_t row = 0; row < 4; ++row) {
    double error = 0;
    double size = 0;
    for (uint32_t output = 0; output < outputs; ++output) {
      dequantize_row(type, file.data() + output * row_bytes(type, inputs), weights.data(), inputs);
      double exact = 0;
      for (uint32_t k = 0; k < inputs; ++k)
        exact += double{x[row * (inputs + kPad) + k]} * weights[k];
      error += std::pow(exact - y[row * (outputs + kPad) + output], 2);
      size += exact * exact;
    }
    EXPECT_LT(std::sqrt(error / size), w.format().is_quantized() ? 1e-2 : 1e-6);
  }
}

TEST_P(MatmulTest, a_row_with_a_nan_is_nan_and_leaves_the_others_alone) {
  const auto [type, level] = GetParam();
  const uint32_t inputs = 512;
  const uint32_t outputs = 33;
  const auto file = random_rows(type, outputs, inputs, 31);
  const auto w = PackedMatrix::pack(level, type, file.data(), {outputs, inputs});
  auto x = padded_rows(3, inputs, 32);
  const auto clean = product(w, x, 3, 1);
  x[1 * (inputs + kPad) + 100] = kPoison;
  const auto y = product(w, x, 3, 1);
  for (uint32_t output = 0; output < outputs; ++output) {
    EXPECT_EQ(y[output], clean[output]);
    EXPECT_TRUE(std::isnan(y[1 * (outputs + kPad) + output]));
    EXPECT_EQ(y[2 * (outputs + kPad) + output], clean[2 * (outputs + kPad) + output]);
  }
}

std::string test_name(const testing::TestParamInfo<MatmulTest::ParamType>& info) {
  return tensor_type_name(std::get<0>(info.param)) + "_" +
         std::string(cpu_level_name(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(AllTypesAndLevels, MatmulTest,
                         testing::Combine(testing::ValuesIn(kTensorTypes),
                                          testing::ValuesIn(available_cpu_levels())),
                         test_name);

// The plain twin of quantize(): one value after the other, as the header says.
void expect_plain_rounding(const Activations& got, const float* x, size_t block) {
  SCOPED_TRACE(testing::Message() << "block " << block);
  float largest = 0;
  bool finite = true;
  for (uint32_t i = 0; i < 32; ++i) {
    finite &= std::isfinite(x[i]);
    largest = std::max(largest, std::abs(x[i]));
  }
  const bool nothing = !finite || largest < kActivationZeroBelow;
  int32_t sums[2] = {0, 0};
  for (uint32_t i = 0; i < 32; ++i) {
    const float scaled = nothing ? 0.0f : x[i] * (127.0f / largest);
    const auto value = static_cast<int32_t>(std::nearbyintf(scaled));
    ASSERT_EQ(got.values[32 * block + i], value) << i;
    sums[i / 16] += value;
  }
  const float scale = nothing ? 0.0f : largest / 127.0f;
  EXPECT_EQ(got.biases[block], -128 * (sums[0] + sums[1]));
  for (uint32_t half = 0; half < 2; ++half) {
    EXPECT_EQ(got.half_biases[2 * block + half], -128 * sums[half]);
  }
  if (!finite) {
    EXPECT_TRUE(std::isnan(got.scales[block]));
    EXPECT_TRUE(std::isnan(got.scaled_sums[block]));
    return;
  }
  EXPECT_EQ(got.scales[block], scale);
  EXPECT_EQ(got.scaled_sums[block], scale * static_cast<float>(sums[0] + sums[1]));
  for (uint32_t half = 0; half < 2; ++half) {
    EXPECT_EQ(got.half_scaled_sums[2 * block + half], scale * static_cast<float>(sums[half]));
  }
}

TEST(QuantizeTest, every_level_rounds_as_the_header_says) {
  const uint32_t inputs = 96;
  auto x = random_floats(size_t{7} * inputs, 41);
  x[3] = 0.5f;
  x[40] = -0.0f;
  for (uint32_t k = 0; k < 32; ++k) x[inputs + k] = 0.0f;         // nothing
  for (uint32_t k = 0; k < 32; ++k) x[inputs + 32 + k] = 1e-38f;  // too small to scale
  x[2 * inputs + 5] = std::numeric_limits<float>::infinity();
  x[3 * inputs + 50] = -kPoison;
  for (uint32_t k = 0; k < 32; ++k) x[4 * inputs + k] = static_cast<float>(k) * 0.5f + 127 - 15.5f;
  for (const CpuLevel level : available_cpu_levels()) {
    SCOPED_TRACE(cpu_level_name(level));
    const ActivationBuffer buffer(level, x.size());
    const Activations got = buffer.view(x.data(), inputs, 7, inputs);
    run_team(2, [&](Team& team) { quantize(team, got); });
    for (size_t block = 0; block < 7 * got.blocks(); ++block) {
      expect_plain_rounding(got, x.data() + 32 * block, block);
    }
    EXPECT_EQ(got.scales[3], 0.0f);
    EXPECT_EQ(got.scales[4], 0.0f);
    EXPECT_TRUE(std::isnan(got.scales[6]));
    EXPECT_TRUE(std::isnan(got.scales[10]));
  }
}

}  // namespace
}  // namespace spillway::kernels
