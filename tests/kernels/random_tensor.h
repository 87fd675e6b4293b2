// Random weight rows of any tensor type for tests: random bytes, redrawn until what they stand for
// is finite and of moderate size.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/dequantize.h"
#include "kernels/half.h"
#include "kernels/tensor_type.h"

namespace spillway::kernels {

inline void random_block(TensorType type, std::mt19937& random, std::byte* to) {
  const size_t bytes = block_bytes(type);
  const uint32_t elements = block_elements(type);
  if (elements == 1) {
    const float value = std::uniform_real_distribution<float>(-1, 1)(random);
    const uint16_t half = type == TensorType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (type == TensorType::kF32) std::memcpy(to, &value, sizeof value);
    if (type != TensorType::kF32) std::memcpy(to, &half, sizeof half);
    return;
  }
  float values[256];
  for (bool moderate = false; !moderate;) {
    for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(random());
    dequantize_row(type, to, values, elements);
    moderate = true;
    for (uint32_t i = 0; i < elements; ++i) moderate &= std::abs(values[i]) < 1e3f;
  }
}

inline std::vector<std::byte> random_rows(TensorType type, uint32_t rows, uint32_t elements,
                                          uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(rows * row_bytes(type, elements));
  for (size_t at = 0; at < out.size(); at += block_bytes(type)) {
    random_block(type, random, out.data() + at);
  }
  return out;
}

inline std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

}  // namespace spillway::kernels
