// The packed sub-block scales of ggml's K-quants, read one at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::kernels {

struct KScale {
  uint32_t scale;    // 0..63
  uint32_t minimum;  // 0..63
};

// Sub-block j (0..7, 32 elements each) of Q4_K and Q5_K, from the block's 12 bytes of scales: 6
// bits each; of the last four, the low four bits share a byte and the high two top the first eight.
inline KScale q4_k_scale(const std::byte* scales, uint32_t j) {
  const auto at = [&](uint32_t i) { return std::to_integer<uint32_t>(scales[i]); };
  if (j < 4) return {at(j) & 63, at(j + 4) & 63};
  return {(at(j + 4) & 15) | at(j - 4) >> 6 << 4, at(j + 4) >> 4 | at(j) >> 6 << 4};
}

// Sub-block j (0..15, 16 elements each) of Q3_K, from its 12 bytes of scales: -32..31.
inline int32_t q3_k_scale(const std::byte* scales, uint32_t j) {
  const auto at = [&](uint32_t i) { return std::to_integer<uint32_t>(scales[i]); };
  const uint32_t low = j < 8 ? at(j) & 15 : at(j - 8) >> 4;
  const uint32_t high = at(8 + j % 4) >> (j / 4 * 2) & 3;
  return static_cast<int32_t>(low | high << 4) - 32;
}

}  // namespace spillway::kernels
