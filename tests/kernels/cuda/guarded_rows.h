// What the tests of kernels share: guarded rows, and comparison bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/cuda/gpu_under_test.h"

namespace spillway::kernels::cuda {

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// The same bits, or NaN both: a NaN's bits are each side's own (operators.h).
inline bool same_value(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Rows of n values, `stride` floats apart: between them NaN, which must neither be read nor
// written.
class GuardedRows {
 public:
  GuardedRows(uint32_t rows, size_t n, size_t stride, uint32_t seed) : n_(n), stride_(stride) {
    // The last row ends where memory does, for AddressSanitizer to see what is past it.
    values_.assign(rows == 0 ? 0 : (rows - 1) * stride + n, kPoison);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (uint32_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < n; ++i) at(row)[i] = 2 * normal(random);
    }
  }
  float* data() { return values_.data(); }
  float* at(uint32_t row) { return values_.data() + row * stride_; }
  const float* at(uint32_t row) const { return values_.data() + row * stride_; }
  size_t n() const { return n_; }
  size_t stride() const { return stride_; }
  uint32_t rows() const {
    return values_.empty() ? 0 : static_cast<uint32_t>((values_.size() - n_) / stride_ + 1);
  }
  // NaN everywhere, as a place for results.
  GuardedRows& poison() {
    values_.assign(values_.size(), kPoison);
    return *this;
  }

  // The same values, and to the bit what lies between the rows.
  void expect_same(const GuardedRows& other) const {
    ASSERT_EQ(values_.size(), other.values_.size());
    for (size_t i = 0; i < values_.size(); ++i) {
      const bool between = i % stride_ >= n_;
      ASSERT_TRUE(between ? std::memcmp(&values_[i], &other.values_[i], sizeof(float)) == 0
                          : same_value(values_[i], other.values_[i]))
          << "row " << i / stride_ << " element " << i % stride_ << ": " << values_[i] << " and "
          << other.values_[i];
    }
  }

 private:
  size_t n_;
  size_t stride_;
  std::vector<float> values_;
};

}  // namespace spillway::kernels::cuda
