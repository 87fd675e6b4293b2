#include "kernels/file_block.h"

#include <cstring>

#include "kernels/k_scales.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

uint8_t byte_at(const std::byte* from, size_t index) {
  return std::to_integer<uint8_t>(from[index]);
}

uint16_t load_u16(const std::byte* from) {
  uint16_t out = 0;
  std::memcpy(&out, from, sizeof out);
  return out;
}

// Blocks of 32: byte i holds element i in its low and element i + 16 in its high four bits.
void nibbles(const std::byte* from, FileBlock& to) {
  for (uint32_t i = 0; i < 16; ++i) {
    to.codes[i] = byte_at(from, i) & 15;
    to.codes[i + 16] = byte_at(from, i) >> 4;
  }
}

void add_fifth_bits(const std::byte* from, FileBlock& to) {
  uint32_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  for (uint32_t i = 0; i < 32; ++i) to.codes[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
}

// K-quants: pairs of bits 32 elements apart share a byte, 32 bytes for each half of 128.
void pairs(const std::byte* from, uint32_t shift, FileBlock& to) {
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t pair = byte_at(from, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    to.codes[i] |= static_cast<uint8_t>(pair << shift);
  }
}

// Bit i / 32 of byte i % 32.
void bits(const std::byte* from, uint32_t shift, FileBlock& to) {
  for (uint32_t i = 0; i < 256; ++i) {
    to.codes[i] |= static_cast<uint8_t>((byte_at(from, i % 32) >> (i / 32) & 1) << shift);
  }
}

// Nibbles `span` elements apart share a byte.
void spread_nibbles(const std::byte* from, uint32_t span, FileBlock& to) {
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t chunk = i / (2 * span);
    const uint32_t shift = i % (2 * span) / span * 4;
    to.codes[i] = byte_at(from, chunk * span + i % span) >> shift & 15;
  }
}

void read_q2_k(const std::byte* from, FileBlock& to) {
  std::memset(to.codes, 0, sizeof to.codes);
  pairs(from + 16, 0, to);
  to.scale = load_u16(from + 80);
  to.minimum = load_u16(from + 82);
  for (uint32_t j = 0; j < 16; ++j) {
    to.sub_scales[j] = byte_at(from, j) & 15;
    to.sub_minimums[j] = byte_at(from, j) >> 4;
  }
}

void read_q3_k(const std::byte* from, FileBlock& to) {
  std::memset(to.codes, 0, sizeof to.codes);
  pairs(from + 32, 0, to);
  bits(from, 2, to);
  to.scale = load_u16(from + 108);
  for (uint32_t j = 0; j < 16; ++j) {
    to.sub_scales[j] = static_cast<uint8_t>(q3_k_scale(from + 96, j));
  }
}

void read_q4_or_q5_k(const std::byte* from, bool fifth, FileBlock& to) {
  spread_nibbles(from + (fifth ? 48 : 16), 32, to);
  if (fifth) bits(from + 16, 4, to);
  to.scale = load_u16(from);
  to.minimum = load_u16(from + 2);
  for (uint32_t j = 0; j < 8; ++j) {
    const KScale sub = q4_k_scale(from + 4, j);
    to.sub_scales[j] = static_cast<uint8_t>(sub.scale);
    to.sub_minimums[j] = static_cast<uint8_t>(sub.minimum);
  }
}

void read_q6_k(const std::byte* from, FileBlock& to) {
  spread_nibbles(from, 64, to);
  pairs(from + 128, 4, to);
  std::memcpy(to.sub_scales, from + 192, sizeof to.sub_scales);
  to.scale = load_u16(from + 208);
}

}  // namespace

void read_file_block(TensorType type, const std::byte* from, FileBlock& to) {
  to.minimum = 0;
  switch (type) {
    case TensorType::kQ2_K:
      return read_q2_k(from, to);
    case TensorType::kQ3_K:
      return read_q3_k(from, to);
    case TensorType::kQ4_K:
      return read_q4_or_q5_k(from, false, to);
    case TensorType::kQ5_K:
      return read_q4_or_q5_k(from, true, to);
    case TensorType::kQ6_K:
      return read_q6_k(from, to);
    default:
      break;
  }
  to.scale = load_u16(from);
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kIq4Nl:
      return nibbles(from + 2, to);
    case TensorType::kQ4_1:
      to.minimum = load_u16(from + 2);
      return nibbles(from + 4, to);
    case TensorType::kQ5_0:
      nibbles(from + 6, to);
      return add_fifth_bits(from + 2, to);
    case TensorType::kQ5_1:
      to.minimum = load_u16(from + 2);
      nibbles(from + 8, to);
      return add_fifth_bits(from + 4, to);
    case TensorType::kQ8_0:
      for (uint32_t i = 0; i < 32; ++i) to.codes[i] = byte_at(from, 2 + i) ^ 0x80;
      return;
    default:
      check_failed("a quantised tensor type", __FILE__, __LINE__);
  }
}

}  // namespace spillway::kernels
