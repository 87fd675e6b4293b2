#include "kernels/dequantize.h"

#include <cstdint>
#include <cstring>

#include "kernels/half.h"
#include "kernels/iq4_nl.h"
#include "kernels/k_scales.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

uint32_t byte_at(const std::byte* from, size_t index) {
  return std::to_integer<uint32_t>(from[index]);
}

int32_t signed_at(const std::byte* from, size_t index) {
  return static_cast<int8_t>(byte_at(from, index));
}

uint32_t load_u32(const std::byte* from) {
  uint32_t out = 0;
  std::memcpy(&out, from, sizeof out);
  return out;
}

// Blocks of 32: nibbles hold element i (low) and i + 16 (high) of byte i; `fifth` the bit above.
int32_t nibble(const std::byte* nibbles, uint32_t i) {
  return static_cast<int32_t>(i < 16 ? byte_at(nibbles, i) & 15 : byte_at(nibbles, i - 16) >> 4);
}

void q4_0(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  for (uint32_t i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(nibble(block + 2, i) - 8);
}

void q4_1(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  const float minimum = load_f16(block + 2);
  for (uint32_t i = 0; i < 32; ++i) {
    to[i] = scale * static_cast<float>(nibble(block + 4, i)) + minimum;
  }
}

int32_t nibble_and_fifth(const std::byte* nibbles, uint32_t fifth, uint32_t i) {
  return nibble(nibbles, i) | static_cast<int32_t>((fifth >> i & 1) << 4);
}

void q5_0(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  const uint32_t fifth = load_u32(block + 2);
  for (uint32_t i = 0; i < 32; ++i) {
    to[i] = scale * static_cast<float>(nibble_and_fifth(block + 6, fifth, i) - 16);
  }
}

void q5_1(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  const float minimum = load_f16(block + 2);
  const uint32_t fifth = load_u32(block + 4);
  for (uint32_t i = 0; i < 32; ++i) {
    to[i] = scale * static_cast<float>(nibble_and_fifth(block + 8, fifth, i)) + minimum;
  }
}

void q8_0(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  for (uint32_t i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(signed_at(block + 2, i));
}

void iq4_nl(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  for (uint32_t i = 0; i < 32; ++i) {
    to[i] = scale * static_cast<float>(kIq4NlValues[nibble(block + 2, i)]);
  }
}

// K-quants: 256 elements; pairs and nibbles are spread so that one byte holds elements 32 (or 64)
// apart. `i` is the element's index in the block.

// Two bits of element i: byte i % 32 of its half of 128, the pair that its 32 take in it.
uint32_t pair_of(const std::byte* pairs, uint32_t i) {
  return byte_at(pairs, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
}

// Four bits of element i of Q4_K and Q5_K: chunks of 64, the first 32 in the low nibbles.
uint32_t nibble_of_chunk(const std::byte* nibbles, uint32_t i) {
  return byte_at(nibbles, i / 64 * 32 + i % 32) >> (i % 64 / 32 * 4) & 15;
}

void q2_k(const std::byte* block, float* to) {
  const std::byte* pairs = block + 16;
  const float scale = load_f16(block + 80);
  const float minimum = load_f16(block + 82);
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t both = byte_at(block, i / 16);
    const float step = scale * static_cast<float>(both & 15);
    const float below = minimum * static_cast<float>(both >> 4);
    to[i] = step * static_cast<float>(pair_of(pairs, i)) - below;
  }
}

void q3_k(const std::byte* block, float* to) {
  const std::byte* third = block;  // bit i / 32 of byte i % 32: clear means 4 less
  const std::byte* pairs = block + 32;
  const float scale = load_f16(block + 108);
  for (uint32_t i = 0; i < 256; ++i) {
    const float step = scale * static_cast<float>(q3_k_scale(block + 96, i / 16));
    const int32_t less = (byte_at(third, i % 32) >> (i / 32) & 1) != 0 ? 0 : 4;
    to[i] = step * static_cast<float>(static_cast<int32_t>(pair_of(pairs, i)) - less);
  }
}

void q4_k(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  const float minimum = load_f16(block + 2);
  for (uint32_t i = 0; i < 256; ++i) {
    const KScale sub = q4_k_scale(block + 4, i / 32);
    const float step = scale * static_cast<float>(sub.scale);
    const float below = minimum * static_cast<float>(sub.minimum);
    to[i] = step * static_cast<float>(nibble_of_chunk(block + 16, i)) - below;
  }
}

void q5_k(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  const float minimum = load_f16(block + 2);
  const std::byte* fifth = block + 16;  // bit i / 32 of byte i % 32
  for (uint32_t i = 0; i < 256; ++i) {
    const KScale sub = q4_k_scale(block + 4, i / 32);
    const float step = scale * static_cast<float>(sub.scale);
    const float below = minimum * static_cast<float>(sub.minimum);
    const uint32_t high = byte_at(fifth, i % 32) >> (i / 32) & 1;
    to[i] = step * static_cast<float>(nibble_of_chunk(block + 48, i) | high << 4) - below;
  }
}

void q6_k(const std::byte* block, float* to) {
  const std::byte* pairs = block + 128;
  const std::byte* scales = block + 192;
  const float scale = load_f16(block + 208);
  for (uint32_t i = 0; i < 256; ++i) {
    // Halves of 128: the first 64 in the low nibbles of 64 bytes, the next in the high ones.
    const uint32_t low = byte_at(block, i / 128 * 64 + i % 64) >> (i % 128 / 64 * 4) & 15;
    const int32_t value = static_cast<int32_t>(low | pair_of(pairs, i) << 4) - 32;
    to[i] = scale * static_cast<float>(signed_at(scales, i / 16)) * static_cast<float>(value);
  }
}

template <class Block>
void each_block(TensorType type, const std::byte* from, float* to, size_t elements, Block block) {
  const size_t step = block_elements(type);
  const size_t bytes = block_bytes(type);
  for (size_t i = 0; i < elements; i += step, from += bytes) block(from, to + i);
}

}  // namespace

void dequantize_row(TensorType type, const std::byte* from, float* to, size_t elements) {
  CHECK(elements % block_elements(type) == 0);
  const auto run = [&](auto block) { each_block(type, from, to, elements, block); };
  switch (type) {
    case TensorType::kF32:
      if (elements > 0) std::memcpy(to, from, elements * sizeof(float));
      return;
    case TensorType::kF16:
      return run([](const std::byte* f, float* t) { *t = load_f16(f); });
    case TensorType::kBf16:
      return run([](const std::byte* f, float* t) { *t = load_bf16(f); });
    case TensorType::kQ4_0:
      return run(q4_0);
    case TensorType::kQ4_1:
      return run(q4_1);
    case TensorType::kQ5_0:
      return run(q5_0);
    case TensorType::kQ5_1:
      return run(q5_1);
    case TensorType::kQ8_0:
      return run(q8_0);
    case TensorType::kQ2_K:
      return run(q2_k);
    case TensorType::kQ3_K:
      return run(q3_k);
    case TensorType::kQ4_K:
      return run(q4_k);
    case TensorType::kQ5_K:
      return run(q5_k);
    case TensorType::kQ6_K:
      return run(q6_k);
    case TensorType::kIq4Nl:
      return run(iq4_nl);
  }
  check_failed("a tensor type that Spillway computes with", __FILE__, __LINE__);
}

}  // namespace spillway::kernels
