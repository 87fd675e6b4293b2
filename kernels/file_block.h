// One block of a quantised tensor as a GGUF file stores it, taken apart into integers: what a
// PackedMatrix is packed from.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor_type.h"

namespace spillway::kernels {

struct FileBlock {
  uint8_t
      codes[256];    // unsigned, in the order of the row; the first 32 for types with blocks of 32
  uint16_t scale;    // f16 bits
  uint16_t minimum;  // f16 bits; 0 where the type has none
  // K-quants: per 32 inputs (8 of each) or per 16 (16 of each); signed in two's complement.
  uint8_t sub_scales[16];
  uint8_t sub_minimums[16];
};

// REQUIRES: a quantised type; `from` has block_bytes(type) bytes.
void read_file_block(TensorType type, const std::byte* from, FileBlock& to);

}  // namespace spillway::kernels
