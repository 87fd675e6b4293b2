// Blocks of a GGUF file to f32: the plain reference that defines what a file's weights are.
// Any thread; reads `from`, writes `to`, nothing else. The block layouts are those of ggml; values
// equal those of the Python package gguf (gguf.quants.dequantize).
#pragma once

#include <cstddef>

#include "kernels/tensor_type.h"

namespace spillway::kernels {

// Dequantises `elements` consecutive elements of a row.
// REQUIRES: elements is a multiple of block_elements(type); `from` has row_bytes(type, elements)
// bytes, of any alignment; `to` has room for `elements` floats.
void dequantize_row(TensorType type, const std::byte* from, float* to, size_t elements);

}  // namespace spillway::kernels
