// The element types of GGUF tensors: which ones Spillway computes with, and how their blocks are
// laid out in a file. Plain facts, any thread. Ids and sizes are those of the GGUF specification
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace spillway::kernels {

enum class TensorType : uint32_t {  // the id in a GGUF file
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIq4Nl = 20,
  kBf16 = 30,
};

inline constexpr TensorType kTensorTypes[] = {
    TensorType::kF32,  TensorType::kF16,  TensorType::kBf16, TensorType::kQ4_0, TensorType::kQ4_1,
    TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kQ2_K, TensorType::kQ3_K,
    TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K, TensorType::kIq4Nl};

// The type with this id if Spillway computes with it.
std::optional<TensorType> tensor_type_from_id(uint32_t id);

// "Q4_1"; for an id that Spillway lacks, its name in GGUF ("IQ2_XXS") or "type 999". For messages.
std::string tensor_type_name(uint32_t id);
inline std::string tensor_type_name(TensorType type) {
  return tensor_type_name(static_cast<uint32_t>(type));
}

uint32_t block_elements(TensorType type);  // consecutive elements of a row in one block: 1, 32, 256
size_t block_bytes(TensorType type);       // bytes of one block in the file

// Bytes of a row of `elements`. REQUIRES: elements is a multiple of block_elements(type).
size_t row_bytes(TensorType type, size_t elements);

}  // namespace spillway::kernels
