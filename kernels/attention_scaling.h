// How scale and soft cap enter the scores, the same in every kernel. Scores are in units of
// log2(e), so that p = 2^(score - max).
#pragma once

#include "kernels/attention_shape.h"
#include "kernels/exp2_polynomial.h"

namespace spillway::kernels {

struct AttentionScaling {
  float query = 1;  // q is multiplied by this
  float cap = 0;    // 0: none. Else score = cap - 2 cap / (2^(q.k) + 1) = cap tanh(...)
};

// 2^(q.k) is capped here, where tanh is 1 to the last bit.
inline constexpr float kSoftCapPowerMax = 64.0f;

// How far (a power of two) scores may rise above the reference before it moves: the first block of
// a split sets it, and it seldom moves again, so a row's maximum need not be known in each block.
inline constexpr float kReferenceSlack = 8.0f;

inline AttentionScaling attention_scaling(const AttentionShape& shape) {
  if (shape.soft_cap == 0) return {.query = shape.scale * kLog2E, .cap = 0};
  return {.query = 2.0f * kLog2E * shape.scale / shape.soft_cap, .cap = shape.soft_cap * kLog2E};
}

}  // namespace spillway::kernels
