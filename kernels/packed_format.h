// How a PackedMatrix lies in memory: the layout that its writer (matrix.cc) and the kernels share.
//
// A panel holds kPanelColumns output columns whole, all their inputs. Quantised panels have two
// sections, so that vectors of codes never straddle a cache line:
//   scales   per block of 32 inputs; for K-quants a head before every 8 blocks
//   codes    per block of 32 inputs, in planes of 64-byte vectors
// A vector of a plane belongs to 16 columns x 4 bytes: byte 4c + i is column c, input 4v + i of the
// block, where v (0..7) is the vector of the block that it expands to:
//   byte plane    8 vectors: vector v as it is
//   nibble plane  4 vectors: v in the low four bits of vector v, v + 4 in the high ones
//   pair plane    2 vectors: v in bits 2 * (v / 2) and up of vector v % 2
//   bit plane     1 vector:  v in bit v
// A code is the sum of its planes: nibble or pair first, the plane for the bits above it behind.
// Float panels are (inputs, 16 columns) of the type itself. Columns past the last are zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor_type.h"
#include "runtime/check.h"

namespace spillway::kernels {

inline constexpr uint32_t kPanelColumns = 16;
inline constexpr uint32_t kBlockInputs = 32;
inline constexpr uint32_t kSuperBlocks = 8;  // blocks of 32 under one head of a K-quant
inline constexpr size_t kVectorBytes = 64;

constexpr size_t align_to_vector(size_t bytes) {
  return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
}

enum class ScaleKind : uint8_t {
  kNone,           // float types
  kPlain,          // f16 scale[16]
  kAffine,         // f16 scale[16], f16 minimum[16]
  kKAffine,        // u8 scale[16], u8 minimum[16]; head f16 scale[16], f16 minimum[16]
  kKHalves,        // i8 scale[2][16], one per 16 inputs; head f16 scale[16]
  kKHalvesAffine,  // u8 [2][16], scale in the low and minimum in the high four bits; head as
                   // kKAffine
};

struct PackedFormat {
  TensorType type;
  ScaleKind scales;
  uint8_t code_bits;      // 2, 3, 4, 5, 6 or 8
  uint8_t zero;           // the code of value 0; 0 where a minimum says it
  bool is_table = false;  // the code is an index into kIq4NlValues

  constexpr bool is_quantized() const { return scales != ScaleKind::kNone; }
  constexpr bool is_affine() const {
    return scales == ScaleKind::kAffine || scales == ScaleKind::kKAffine ||
           scales == ScaleKind::kKHalvesAffine;
  }
  constexpr bool has_halves() const {
    return scales == ScaleKind::kKHalves || scales == ScaleKind::kKHalvesAffine;
  }
  constexpr size_t code_bytes() const { return size_t{code_bits} * kVectorBytes; }  // of a block
  constexpr size_t head_bytes() const {
    if (scales == ScaleKind::kKHalves) return 32;
    return scales == ScaleKind::kKAffine || scales == ScaleKind::kKHalvesAffine ? 64 : 0;
  }
  constexpr size_t scale_bytes() const {  // of a block, its head aside
    if (scales == ScaleKind::kNone) return 0;
    return scales == ScaleKind::kAffine ? 64 : 32;
  }
  // Offset of the scales of `block` in a panel; heads lie in front of every kSuperBlocks blocks.
  constexpr size_t scale_offset(size_t block) const {
    const size_t heads = head_bytes() == 0 ? 0 : block / kSuperBlocks + 1;
    return heads * head_bytes() + block * scale_bytes();
  }
  constexpr size_t head_offset(size_t block) const {
    const size_t super = block / kSuperBlocks;
    return super * (head_bytes() + kSuperBlocks * scale_bytes());
  }
  // Bytes of a panel's scales, which are also the offset of its codes: whole vectors.
  constexpr size_t scale_section_bytes(size_t blocks) const {
    const size_t heads = head_bytes() == 0 ? 0 : blocks / kSuperBlocks;
    return align_to_vector(heads * head_bytes() + blocks * scale_bytes());
  }
};

inline constexpr PackedFormat kPackedFormats[] = {
    {TensorType::kF32, ScaleKind::kNone, 32, 0},
    {TensorType::kF16, ScaleKind::kNone, 16, 0},
    {TensorType::kBf16, ScaleKind::kNone, 16, 0},
    {TensorType::kQ4_0, ScaleKind::kPlain, 4, 8},
    {TensorType::kQ4_1, ScaleKind::kAffine, 4, 0},
    {TensorType::kQ5_0, ScaleKind::kPlain, 5, 16},
    {TensorType::kQ5_1, ScaleKind::kAffine, 5, 0},
    {TensorType::kQ8_0, ScaleKind::kPlain, 8, 128},
    {TensorType::kQ2_K, ScaleKind::kKHalvesAffine, 2, 0},
    {TensorType::kQ3_K, ScaleKind::kKHalves, 3, 4},
    {TensorType::kQ4_K, ScaleKind::kKAffine, 4, 0},
    {TensorType::kQ5_K, ScaleKind::kKAffine, 5, 0},
    {TensorType::kQ6_K, ScaleKind::kKHalves, 6, 32},
    {TensorType::kIq4Nl, ScaleKind::kPlain, 4, 128, true},
};

constexpr const PackedFormat& packed_format(TensorType type) {
  for (const PackedFormat& format : kPackedFormats) {
    if (format.type == type) return format;
  }
  check_failed("a tensor type that Spillway computes with", __FILE__, __LINE__);
}

}  // namespace spillway::kernels
