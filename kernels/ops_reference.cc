#include "kernels/ops_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/exp2_polynomial.h"
#include "kernels/ops_levels.h"

namespace spillway::kernels::reference {
namespace {

constexpr size_t kLanes = 64;

float tree(float (&lanes)[kLanes]) {
  for (size_t l = 0; l < 16; ++l) {
    lanes[l] = (lanes[l] + lanes[l + 16]) + (lanes[l + 32] + lanes[l + 48]);
  }
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

float times_power(float value, float rounded) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) +
                              (std::bit_cast<uint32_t>(rounded) << 23));
}

}  // namespace

float Arithmetic::fma(float a, float b, float c) const {
  return fused_ ? std::fma(a, b, c) : a * b + c;
}

float Arithmetic::polynomial(float f) const {
  float value = kExp2Coefficients[6];
  for (int k = 5; k >= 0; --k) value = fma(value, f, kExp2Coefficients[k]);
  return value;
}

float Arithmetic::exp2(float y) const {
  if (y < kExp2Low) return 0;
  const float rounded = y + kRoundMagic;
  return times_power(polynomial(y - (rounded - kRoundMagic)), rounded);
}

float Arithmetic::exp(float x) const {
  if (x < kExpLow) return 0;
  x = std::min(x, kExpHigh);
  const float rounded = fma(x, kLog2E, kRoundMagic);
  const float n = rounded - kRoundMagic;
  const float r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
  return times_power(polynomial(r * kLog2E), rounded);
}

float Arithmetic::sum(const float* x, size_t n) const {
  float lanes[kLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % kLanes] += x[i];
  return tree(lanes);
}

float Arithmetic::sum_squares(const float* x, size_t n) const {
  float lanes[kLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % kLanes] = fma(x[i], x[i], lanes[i % kLanes]);
  return tree(lanes);
}

void Arithmetic::rms_norm(float* y, const float* x, const float* weight, size_t n,
                          float eps) const {
  const float mean = sum_squares(x, n) / static_cast<float>(n);
  const float factor = 1.0f / std::sqrt(mean + eps);
  for (size_t i = 0; i < n; ++i) y[i] = (x[i] * factor) * weight[i];
}

void Arithmetic::rope(float* x, const RopeTable& table, const float* angles) const {
  const uint32_t dims = table.dims;
  const std::vector<float> old(x, x + dims);
  for (uint32_t i = 0; i < dims; ++i) {
    const uint32_t partner = table.order == RopeOrder::kPairs ? i ^ 1u : (i + dims / 2) % dims;
    x[i] = fma(old[i], angles[i], old[partner] * angles[dims + i]);
  }
}

void Arithmetic::silu_mul(float* y, const float* gate, const float* up, size_t n) const {
  for (size_t i = 0; i < n; ++i) y[i] = gate[i] / (1.0f + exp(0.0f - gate[i])) * up[i];
}

void Arithmetic::gelu_mul(float* y, const float* gate, const float* up, size_t n) const {
  for (size_t i = 0; i < n; ++i) {
    const float x = gate[i];
    const float inner = fma(kGeluCubic * x, x * x, x);
    y[i] = x / (1.0f + exp(inner * kGeluMinusTwo)) * up[i];
  }
}

void Arithmetic::soft_cap(float* y, float cap, size_t n) const {
  const float twice_inverse = 2.0f / cap;
  for (size_t i = 0; i < n; ++i) {
    y[i] = fma(-2.0f * cap, 1.0f / (exp(y[i] * twice_inverse) + 1.0f), cap);
  }
}

RowStats Arithmetic::row_stats(const float* x, size_t n) const {
  float max = kMinusInfinity;
  for (size_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  max += 0.0f;
  double total = 0;
  for (size_t start = 0; start < n; start += kStatsStretch) {
    std::vector<float> stretch(x + start, x + std::min(n, start + kStatsStretch));
    for (float& value : stretch) value = exp(value - max);
    total += sum(stretch.data(), stretch.size());
  }
  return {.max = max, .log_sum_exp = static_cast<float>(max + std::log(total))};
}

uint32_t Arithmetic::argmax(const float* x, size_t n) {
  uint32_t best = 0;
  float max = kMinusInfinity;
  for (size_t i = 0; i < n; ++i) {
    if (x[i] > max) {
      max = x[i];
      best = static_cast<uint32_t>(i);
    }
  }
  return best;
}

}  // namespace spillway::kernels::reference
