// The plain twins of ops.h: scalar loops in the documented order, obviously right. `fused` says
// whether a product and a sum round once (every level from kAvx2 on) or twice (kBaseline); with it
// set as the level does, a twin gives the same bits as the fast operator.
#pragma once

#include "kernels/ops.h"

namespace spillway::kernels::reference {

class Arithmetic {
 public:
  explicit Arithmetic(bool fused) : fused_(fused) {}

  float fma(float a, float b, float c) const;
  float exp2(float y) const;  // y <= 0 (or small); 0 below -126
  float exp(float x) const;
  // The tree of ops.h over x[i], or over x[i]^2.
  float sum(const float* x, size_t n) const;
  float sum_squares(const float* x, size_t n) const;

  void rms_norm(float* y, const float* x, const float* weight, size_t n, float eps) const;
  void rope(float* x, const RopeTable& table, const float* angles) const;  // one head
  void silu_mul(float* y, const float* gate, const float* up, size_t n) const;
  void gelu_mul(float* y, const float* gate, const float* up, size_t n) const;
  void soft_cap(float* y, float cap, size_t n) const;
  RowStats row_stats(const float* x, size_t n) const;
  static uint32_t argmax(const float* x, size_t n);

 private:
  float polynomial(float f) const;
  bool fused_;
};

}  // namespace spillway::kernels::reference
