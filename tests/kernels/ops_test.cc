// Row operators: every level against its plain twin, bit for bit, and the twins against doubles.
#include "kernels/ops.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ops_reference.h"

namespace spillway::kernels {
namespace {

using reference::Arithmetic;

constexpr size_t kGuard = 16;  // elements past the end: NaN before, the same bits after
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A row with NaN poison on both sides.
class Row {
 public:
  explicit Row(size_t n, float value = 0) : n_(n), data_(n + 2 * kGuard, kNan) {
    for (size_t i = 0; i < n; ++i) data()[i] = value;
  }
  static Row random(size_t n, uint32_t seed, float spread) {
    Row row(n);
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0, spread);
    for (size_t i = 0; i < n; ++i) row.data()[i] = normal(engine);
    return row;
  }
  float* data() { return data_.data() + kGuard; }
  const float* data() const { return data_.data() + kGuard; }
  size_t size() const { return n_; }
  bool same_bits(const Row& other) const {
    return std::memcmp(data_.data(), other.data_.data(), data_.size() * sizeof(float)) == 0;
  }

 private:
  size_t n_;
  std::vector<float> data_;
};

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Sizes around every vector, accumulator and stretch edge, and any other.
rc::Gen<size_t> row_size() {
  return rc::gen::oneOf(rc::gen::element<size_t>(0, 1, 15, 16, 17, 31, 63, 64, 65, 576, 1536),
                        rc::gen::inRange<size_t>(0, 700));
}

struct Operands {
  Row x, y, weight;
};

Operands random_operands(size_t n, float spread) {
  const uint32_t seed = *rc::gen::arbitrary<uint32_t>();
  return {Row::random(n, seed, spread), Row::random(n, seed + 1, spread),
          Row::random(n, seed + 2, spread)};
}

class OpsLevelTest : public testing::TestWithParam<CpuLevel> {
 protected:
  const RowOps& ops_ = row_ops(GetParam());
  const Arithmetic twin_{GetParam() != CpuLevel::kBaseline};
};

INSTANTIATE_TEST_SUITE_P(Levels, OpsLevelTest, testing::ValuesIn(available_cpu_levels()),
                         [](const auto& info) { return std::string(cpu_level_name(info.param)); });

TEST_P(OpsLevelTest, rms_norm_equals_its_twin) {
  EXPECT_TRUE(rc::check("rms_norm", [&] {
    Operands in = random_operands(*row_size(), 3);
    Row expected = in.y;
    twin_.rms_norm(expected.data(), in.x.data(), in.weight.data(), in.x.size(), 1e-5f);
    ops_.rms_norm(in.y.data(), in.x.data(), in.weight.data(), in.x.size(), 1e-5f);
    RC_ASSERT(in.y.same_bits(expected));
  }));
}

TEST_P(OpsLevelTest, gated_activations_equal_their_twins) {
  EXPECT_TRUE(rc::check("silu_mul, gelu_mul", [&] {
    Operands in = random_operands(*row_size(), *rc::gen::element(1.0f, 8.0f, 60.0f));
    Row silu = in.y, gelu = in.y, expected_silu = in.y, expected_gelu = in.y;
    const size_t n = in.x.size();
    ops_.silu_mul(silu.data(), in.x.data(), in.weight.data(), n);
    ops_.gelu_mul(gelu.data(), in.x.data(), in.weight.data(), n);
    twin_.silu_mul(expected_silu.data(), in.x.data(), in.weight.data(), n);
    twin_.gelu_mul(expected_gelu.data(), in.x.data(), in.weight.data(), n);
    RC_ASSERT(silu.same_bits(expected_silu));
    RC_ASSERT(gelu.same_bits(expected_gelu));
  }));
}

TEST_P(OpsLevelTest, element_wise_operators_equal_their_twins) {
  EXPECT_TRUE(rc::check("add, scale, soft_cap, exp", [&] {
    Operands in = random_operands(*row_size(), *rc::gen::element(1.0f, 50.0f));
    const size_t n = in.x.size();
    Row sum = in.y, scaled = in.y, capped = in.y, power = in.y;
    ops_.add(sum.data(), in.x.data(), n);
    ops_.scale(scaled.data(), 1.7f, n);
    ops_.soft_cap(capped.data(), 30.0f, n);
    ops_.exp(power.data(), in.x.data(), n);
    Row expected_sum = in.y, expected_scaled = in.y, expected_capped = in.y, expected_power = in.y;
    twin_.soft_cap(expected_capped.data(), 30.0f, n);
    for (size_t i = 0; i < n; ++i) {
      expected_sum.data()[i] += in.x.data()[i];
      expected_scaled.data()[i] *= 1.7f;
      expected_power.data()[i] = twin_.exp(in.x.data()[i]);
    }
    RC_ASSERT(sum.same_bits(expected_sum));
    RC_ASSERT(scaled.same_bits(expected_scaled));
    RC_ASSERT(capped.same_bits(expected_capped));
    RC_ASSERT(power.same_bits(expected_power));
  }));
}

TEST_P(OpsLevelTest, rope_equals_its_twin_in_both_orders_and_leaves_the_rest) {
  EXPECT_TRUE(rc::check("rope", [&] {
    const uint32_t dims = 2 * *rc::gen::inRange(1u, 80u);
    const uint32_t head_dim = dims + *rc::gen::element(0u, 2u, 16u);
    const uint32_t heads = *rc::gen::inRange(1u, 4u);
    const RopeTable table = make_rope_table(
        {.order = *rc::gen::element(RopeOrder::kPairs, RopeOrder::kHalves), .dims = dims});
    std::vector<float> angles(rope_angle_count(table));
    rope_angles(table, *rc::gen::inRange(0u, 100000u), angles.data());
    Row x = Row::random(size_t{heads} * head_dim, *rc::gen::arbitrary<uint32_t>(), 1);
    Row expected = x;
    for (uint32_t h = 0; h < heads; ++h) {
      twin_.rope(expected.data() + size_t{h} * head_dim, table, angles.data());
    }
    ops_.rope(x.data(), heads, head_dim, table, angles.data());
    RC_ASSERT(x.same_bits(expected));
  }));
}

TEST_P(OpsLevelTest, row_statistics_equal_their_twins) {
  EXPECT_TRUE(rc::check("row_stats, argmax", [&] {
    const size_t n =
        *rc::gen::oneOf(rc::gen::inRange<size_t>(1, 300),
                        rc::gen::element<size_t>(4095, 4096, 4097, 4096 + 63, 8192 + 17, 49152));
    const Row x = Row::random(n, *rc::gen::arbitrary<uint32_t>(), 5);
    const RowStats got = ops_.row_stats(x.data(), n);
    const RowStats expected = twin_.row_stats(x.data(), n);
    RC_ASSERT(same_bits(got.max, expected.max));
    RC_ASSERT(same_bits(got.log_sum_exp, expected.log_sum_exp));
    RC_ASSERT(ops_.argmax(x.data(), n) == Arithmetic::argmax(x.data(), n));
  }));
}

TEST_P(OpsLevelTest, argmax_takes_the_first_of_equals_and_passes_over_nan) {
  Row x(100, 1.0f);
  x.data()[0] = kNan;
  x.data()[37] = x.data()[38] = x.data()[99] = 2.0f;
  EXPECT_EQ(ops_.argmax(x.data(), 100), 37u);
  EXPECT_EQ(ops_.argmax(x.data(), 37), 1u);
  x.data()[5] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(ops_.argmax(x.data() + 5, 1), 0u);
}

TEST_P(OpsLevelTest, soft_cap_and_gates_survive_extreme_values) {
  Row x(5);
  const float values[] = {-1e30f, -200.0f, 0.0f, 200.0f, 1e30f};
  std::copy_n(values, 5, x.data());
  Row capped = x, gate(5), one(5, 1.0f);
  ops_.soft_cap(capped.data(), 30.0f, 5);
  ops_.silu_mul(gate.data(), x.data(), one.data(), 5);
  const float expected_cap[] = {-30, -30.0f * std::tanh(200.0f / 30), 0,
                                30.0f * std::tanh(200.0f / 30), 30};
  const float expected_gate[] = {0, 0, 0, 200, 1e30f};
  for (int i = 0; i < 5; ++i) {
    EXPECT_NEAR(capped.data()[i], expected_cap[i], 1e-5) << i;
    EXPECT_NEAR(gate.data()[i], expected_gate[i], 1e-6f) << i;
  }
}

TEST_P(OpsLevelTest, exp_is_within_its_stated_error) {
  double worst = 0;
  for (float x = -87.0f; x <= 88.0f; x += 0.00037f) {
    float y = 0;
    ops_.exp(&y, &x, 1);
    worst = std::max(worst, std::abs(y / std::exp(static_cast<double>(x)) - 1));
  }
  EXPECT_LT(worst, 1.5e-7);
  const float low = -87.01f;
  float y = 1;
  ops_.exp(&y, &low, 1);
  EXPECT_EQ(y, 0.0f);
}

TEST_P(OpsLevelTest, operators_are_near_double_precision) {
  const size_t n = 1536;
  const Row x = Row::random(n, 7, 2), up = Row::random(n, 8, 1);
  Row norm(n), silu(n), gelu(n);
  ops_.rms_norm(norm.data(), x.data(), up.data(), n, 1e-5f);
  ops_.silu_mul(silu.data(), x.data(), up.data(), n);
  ops_.gelu_mul(gelu.data(), x.data(), up.data(), n);
  double squares = 0, sum = 0;
  for (size_t i = 0; i < n; ++i) {
    squares += double{x.data()[i]} * x.data()[i];
    sum += std::exp(double{x.data()[i]});
  }
  const double factor = 1 / std::sqrt(squares / n + 1e-5);
  for (size_t i = 0; i < n; ++i) {
    const double v = x.data()[i], u = up.data()[i];
    EXPECT_NEAR(norm.data()[i], v * factor * u, 1e-6 * (1 + std::abs(v * u)));
    EXPECT_NEAR(silu.data()[i], v / (1 + std::exp(-v)) * u, 1e-6 * (1 + std::abs(v * u)));
    const double z = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    EXPECT_NEAR(gelu.data()[i], 0.5 * v * (1 + std::tanh(z)) * u, 1e-6 * (1 + std::abs(v * u)));
  }
  EXPECT_NEAR(ops_.row_stats(x.data(), n).log_sum_exp, std::log(sum), 1e-6);
}

TEST(RopeTableTest, angles_follow_base_scale_factors_and_magnitude) {
  const std::vector<float> factors = {1, 8};
  const RopeTable table = make_rope_table({.order = RopeOrder::kHalves,
                                           .dims = 4,
                                           .base = 10000,
                                           .scale = 0.5,
                                           .factors = factors,
                                           .magnitude = 2});
  float angles[8];
  rope_angles(table, 3, angles);
  const double first = 3 * 0.5, second = 3 * 0.5 * 0.01 / 8;
  const double expected[] = {2 * std::cos(first),  2 * std::cos(second), 2 * std::cos(first),
                             2 * std::cos(second), -2 * std::sin(first), -2 * std::sin(second),
                             2 * std::sin(first),  2 * std::sin(second)};
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(angles[i], expected[i], 1e-6) << i;
}

TEST(RopeTableTest, pairs_and_halves_are_one_rotation_of_permuted_dimensions) {
  const RopeTable pairs = make_rope_table({.order = RopeOrder::kPairs, .dims = 64});
  const RopeTable halves = make_rope_table({.order = RopeOrder::kHalves, .dims = 64});
  std::vector<float> pair_angles(128), half_angles(128);
  rope_angles(pairs, 4321, pair_angles.data());
  rope_angles(halves, 4321, half_angles.data());
  Row x = Row::random(64, 3, 1), y(64);
  for (int i = 0; i < 32; ++i) {
    y.data()[i] = x.data()[2 * i];
    y.data()[i + 32] = x.data()[2 * i + 1];
  }
  const Arithmetic twin(true);
  twin.rope(x.data(), pairs, pair_angles.data());
  twin.rope(y.data(), halves, half_angles.data());
  for (int i = 0; i < 32; ++i) {
    EXPECT_TRUE(same_bits(y.data()[i], x.data()[2 * i])) << i;
    EXPECT_TRUE(same_bits(y.data()[i + 32], x.data()[2 * i + 1])) << i;
  }
}

}  // namespace
}  // namespace spillway::kernels
