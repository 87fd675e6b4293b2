// Element-wise and row operators of a transformer layer, one table of functions per CPU level.
//
// Every function works on one row (or any range, where elements are independent) of f32 in the
// calling thread; a caller splits rows over the workers of a Team as it likes. The result of a row
// depends on that row alone. Reductions run in a fixed tree, so kAvx2 and everything above it give
// the same bits; kBaseline has no FMA and may round differently. Rows need no alignment; nothing
// past `n` is read or written. `y` and `x` may be the same row unless said otherwise.
//
// The tree of a sum over n elements: 64 lanes, element i is added to lane i % 64 in ascending
// order; then lanes l, l+16, l+32, l+48 as (a + b) + (c + d), then halves: l + (l + 8), 4, 2, 1.
// The plain form of each operator, in this same order, is in ops_reference.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu_level.h"

namespace spillway::kernels {

// Which dimensions of a head rotate together: 2i with 2i+1 (GGUF files of architecture llama), or
// i with i + dims/2 (NeoX: qwen, gemma).
enum class RopeOrder : uint8_t { kPairs, kHalves };

// The rotation of a layer group. Built once at load; read by all threads.
struct RopeTable {
  RopeOrder order = RopeOrder::kPairs;
  uint32_t dims = 0;                        // rotated dimensions of a head, even; the rest stays
  std::vector<double> inverse_frequencies;  // (dims / 2), radians per position
  float magnitude = 1.0f;                   // YaRN's attention factor; scales both cos and sin
};

struct RopeSettings {
  RopeOrder order = RopeOrder::kPairs;
  uint32_t dims = 0;
  double base = 10000.0;
  double scale = 1.0;  // positions count this much (linear scaling by s: 1/s)
  // Divides the frequency of each pair (Llama 3's rope_freqs.weight); empty, or dims / 2 long.
  std::span<const float> factors = {};
  float magnitude = 1.0f;
};
RopeTable make_rope_table(const RopeSettings& settings);

// Floats of one position's angles: (2, dims): the cosine of each dimension, then its sine, negated
// for the first dimension of a pair. Shared by all layers and heads with the same table.
inline size_t rope_angle_count(const RopeTable& table) { return size_t{2} * table.dims; }
// Writes rope_angle_count floats. In double, about 40 ns a pair: once per row and step.
void rope_angles(const RopeTable& table, uint32_t position, float* angles);

struct RowStats {
  float max = 0;
  float log_sum_exp = 0;  // log of the sum of exp(x); log-probability of i = x[i] - log_sum_exp
};

struct RowOps {
  // y = (x * (1 / sqrt(mean(x^2) + eps))) * weight. Of a head's row: QK-norm.
  void (*rms_norm)(float* y, const float* x, const float* weight, size_t n, float eps);
  // Rotates the first table.dims elements of each of `heads` heads at x, x + head_stride, ...
  // y[i] = fma(x[i], cos[i], x[partner] * sin[i]).
  void (*rope)(float* x, uint32_t heads, size_t head_stride, const RopeTable& table,
               const float* angles);
  // y = gate / (1 + exp(-gate)) * up.
  void (*silu_mul)(float* y, const float* gate, const float* up, size_t n);
  // y = gelu(gate) * up, gelu's tanh form, as gate / (1 + exp(-2 z)),
  // z = sqrt(2/pi) (gate + 0.044715 gate^3).
  void (*gelu_mul)(float* y, const float* gate, const float* up, size_t n);
  void (*add)(float* y, const float* x, size_t n);  // y += x
  void (*scale)(float* y, float factor, size_t n);  // y *= factor
  void (*soft_cap)(float* y, float cap, size_t n);  // y = cap * tanh(y / cap)
  // Maximum and log-sum-exp. REQUIRES: n >= 1. NaN elements do not count as the maximum.
  // Sums stretches of 4,096 elements by the tree above, adds these in double.
  RowStats (*row_stats)(const float* x, size_t n);
  // Index of the greatest element, the first of equals; 0 if all are NaN. REQUIRES: n >= 1.
  uint32_t (*argmax)(const float* x, size_t n);
  // y = exp(x): relative error below 1.5e-7 (2.5 ulp) for x in [-87, 88]; above, exp(88);
  // below, exactly 0. All operators above use this one (2^f by a polynomial of degree 6).
  void (*exp)(float* y, const float* x, size_t n);
};

// REQUIRES: this machine has `level`. Levels without a table of their own share the one below.
const RowOps& row_ops(CpuLevel level);

}  // namespace spillway::kernels
