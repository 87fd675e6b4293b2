#include "kernels/tensor_type.h"

#include "runtime/check.h"

namespace spillway::kernels {
namespace {

struct Format {
  TensorType type;
  uint32_t elements;  // in a block
  uint32_t bytes;     // of a block
};

constexpr Format kFormats[] = {
    {TensorType::kF32, 1, 4},      {TensorType::kF16, 1, 2},      {TensorType::kBf16, 1, 2},
    {TensorType::kQ4_0, 32, 18},   {TensorType::kQ4_1, 32, 20},   {TensorType::kQ5_0, 32, 22},
    {TensorType::kQ5_1, 32, 24},   {TensorType::kQ8_0, 32, 34},   {TensorType::kQ2_K, 256, 84},
    {TensorType::kQ3_K, 256, 110}, {TensorType::kQ4_K, 256, 144}, {TensorType::kQ5_K, 256, 176},
    {TensorType::kQ6_K, 256, 210}, {TensorType::kIq4Nl, 32, 18},
};

const Format& format_of(TensorType type) {
  for (const Format& format : kFormats) {
    if (format.type == type) return format;
  }
  check_failed("a tensor type that Spillway computes with", __FILE__, __LINE__);
}

// Every id that GGUF files use or have used, by index; empty where one was never given out.
constexpr const char* kNames[] = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
    "Q2_0"};

}  // namespace

std::optional<TensorType> tensor_type_from_id(uint32_t id) {
  for (const Format& format : kFormats) {
    if (static_cast<uint32_t>(format.type) == id) return format.type;
  }
  return std::nullopt;
}

std::string tensor_type_name(uint32_t id) {
  return id < std::size(kNames) ? kNames[id] : "type " + std::to_string(id);
}

uint32_t block_elements(TensorType type) { return format_of(type).elements; }

size_t block_bytes(TensorType type) { return format_of(type).bytes; }

size_t row_bytes(TensorType type, size_t elements) {
  const Format& format = format_of(type);
  CHECK(elements % format.elements == 0);
  return elements / format.elements * format.bytes;
}

}  // namespace spillway::kernels
