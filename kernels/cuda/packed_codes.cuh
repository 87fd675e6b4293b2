// Reading a PackedMatrix (packed_format.h) on a GPU: the bytes are those that the CPU packed. A
// 32-bit word of a plane holds four consecutive inputs of one column, which is what a lane of an
// 8-bit mma wants of A; unpacking is an AND or two.
#pragma once

#include "kernels/cuda/operators.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/iq4_nl.h"
#include "kernels/packed_format.h"

namespace spillway::kernels::cuda {

template <class T>
SPILLWAY_DEVICE T read_as(const std::byte* from) {
  return *reinterpret_cast<const T*>(from);
}

// Packed bytes in global memory. Whoever brings them to shared memory has a type like it.
struct GlobalBytes {
  const std::byte* first;
  SPILLWAY_DEVICE uint32_t word(size_t at) const { return read_as<uint32_t>(first + at); }
  SPILLWAY_DEVICE uint16_t half(size_t at) const { return read_as<uint16_t>(first + at); }
  SPILLWAY_DEVICE uint8_t byte(size_t at) const { return read_as<uint8_t>(first + at); }
};

// Bits [shift, shift + bits) of the codes of inputs 4v .. 4v + 3, from a plane of `bits`.
template <uint32_t kBits, class Bytes>
SPILLWAY_DEVICE uint32_t plane_word(const Bytes& codes, uint32_t plane, uint32_t column,
                                    uint32_t v) {
  constexpr uint32_t kMask = 0x01010101u * ((1u << kBits) - 1);
  const uint32_t word = codes.word((plane + v % kBits) * kVectorBytes + 4 * column);
  return word >> (v / kBits * kBits) & kMask;
}

constexpr uint32_t low_bits(uint32_t code_bits) {
  return code_bits == 8 ? 8 : (code_bits >= 4 ? 4 : 2);
}

// Four values of IQ4_NL's table, as signed bytes.
SPILLWAY_DEVICE uint32_t iq4_nl_bytes(uint32_t codes) {
  constexpr auto quarter = [](int first) {
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i)
      out |= uint32_t{static_cast<uint8_t>(kIq4NlValues[first + i])} << 8 * i;
    return out;
  };
  constexpr uint32_t q0 = quarter(0), q1 = quarter(4), q2 = quarter(8), q3 = quarter(12);
  uint32_t out = 0;
  for (uint32_t shift = 0; shift < 32; shift += 8) {
    const uint32_t code = codes >> shift & 15;
    const uint32_t low = code < 4 ? q0 : q1;
    const uint32_t high = code < 12 ? q2 : q3;
    out |= ((code < 8 ? low : high) >> (8 * (code % 4)) & 0xff) << shift;
  }
  return out;
}

// Inputs 4v .. 4v + 3 of a column's block as four signed bytes, the format's zero taken off.
// `codes` is the block's.
template <TensorType kType, class Bytes>
SPILLWAY_DEVICE uint32_t code_bytes(const Bytes& codes, uint32_t column, uint32_t v) {
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr uint32_t kLow = low_bits(kFormat.code_bits);
  uint32_t word = plane_word<kLow>(codes, 0, column, v);
  if constexpr (kFormat.code_bits > kLow) {
    word |= plane_word<kFormat.code_bits - kLow>(codes, kLow, column, v) << kLow;
  }
  if constexpr (kFormat.is_table) return iq4_nl_bytes(word);
  if constexpr (kFormat.zero == 0) return word;
  return subtract_bytes(word, 0x01010101u * kFormat.zero);
}

struct ColumnScales {
  float scale[2];    // per 16 inputs; equal where the format has one per 32
  float minimum[2];  // what is added
};

// As PackedMatrix::column_block(), from the scales of the block and the head above them.
template <TensorType kType, class Bytes>
SPILLWAY_DEVICE ColumnScales column_scales(const Bytes& scales, const Bytes& head,
                                           uint32_t column) {
  constexpr PackedFormat kFormat = packed_format(kType);
  ColumnScales out{};
  if constexpr (kFormat.scales == ScaleKind::kPlain || kFormat.scales == ScaleKind::kAffine) {
    out.scale[0] = out.scale[1] = f16_to_float(scales.half(2 * column));
    if constexpr (kFormat.is_affine()) {
      out.minimum[0] = out.minimum[1] = f16_to_float(scales.half(32 + 2 * column));
    }
  } else {
    const float scale = f16_to_float(head.half(2 * column));
    float minimum = 0;
    if constexpr (kFormat.is_affine()) minimum = f16_to_float(head.half(32 + 2 * column));
    const uint32_t bytes[2] = {scales.byte(column), scales.byte(16 + column)};
    for (uint32_t half = 0; half < 2; ++half) {
      if constexpr (kFormat.scales == ScaleKind::kKAffine) {
        out.scale[half] = scale * static_cast<float>(bytes[0]);
        out.minimum[half] = -(minimum * static_cast<float>(bytes[1]));
      } else if constexpr (kFormat.scales == ScaleKind::kKHalves) {
        out.scale[half] = scale * static_cast<float>(static_cast<int8_t>(bytes[half]));
      } else {
        out.scale[half] = scale * static_cast<float>(bytes[half] & 15);
        out.minimum[half] = -(minimum * static_cast<float>(bytes[half] >> 4));
      }
    }
  }
  return out;
}

// The same from a panel in global memory.
template <TensorType kType>
SPILLWAY_DEVICE ColumnScales column_scales(const std::byte* panel, uint32_t column,
                                           uint32_t block) {
  constexpr PackedFormat kFormat = packed_format(kType);
  return column_scales<kType>(GlobalBytes{panel + kFormat.scale_offset(block)},
                              GlobalBytes{panel + kFormat.head_offset(block)}, column);
}

template <TensorType kType>
struct TypeTag {
  static constexpr TensorType value = kType;
};

// Calls `use` with the TypeTag of a quantised type.
template <class Use>
auto with_quantised_type(TensorType type, const Use& use) {
  switch (type) {
    case TensorType::kQ4_0:
      return use(TypeTag<TensorType::kQ4_0>{});
    case TensorType::kQ4_1:
      return use(TypeTag<TensorType::kQ4_1>{});
    case TensorType::kQ5_0:
      return use(TypeTag<TensorType::kQ5_0>{});
    case TensorType::kQ5_1:
      return use(TypeTag<TensorType::kQ5_1>{});
    case TensorType::kQ8_0:
      return use(TypeTag<TensorType::kQ8_0>{});
    case TensorType::kQ2_K:
      return use(TypeTag<TensorType::kQ2_K>{});
    case TensorType::kQ3_K:
      return use(TypeTag<TensorType::kQ3_K>{});
    case TensorType::kQ4_K:
      return use(TypeTag<TensorType::kQ4_K>{});
    case TensorType::kQ5_K:
      return use(TypeTag<TensorType::kQ5_K>{});
    case TensorType::kQ6_K:
      return use(TypeTag<TensorType::kQ6_K>{});
    case TensorType::kIq4Nl:
      return use(TypeTag<TensorType::kIq4Nl>{});
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBf16:
      break;
  }
  check_failed("a quantised type", __FILE__, __LINE__);
}

}  // namespace spillway::kernels::cuda
