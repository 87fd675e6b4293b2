// What the attention of a layer group computes, and the fixed steps of its one tree (attention.h).
// Plain types only: this header is included by CUDA sources.
#pragma once

#include <cstdint>

namespace spillway::kernels {

inline constexpr uint32_t kAttentionBlockTokens = 64;
inline constexpr uint32_t kAttentionSplitTokens = 512;

struct AttentionShape {
  uint32_t heads = 0;  // query heads, a multiple of the layout's kv_heads
  float scale = 1;     // of q.k
  float soft_cap = 0;  // 0: none
};

}  // namespace spillway::kernels
