// Bytes of one GGUF part to its metadata and tensor index. Internal to gguf.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.h"
#include "runtime/result.h"

namespace spillway::model {

// Bytes of one element; 0 for strings, arrays and unknown types.
size_t gguf_type_bytes(GgufType type);

struct GgufPart {
  std::vector<GgufValue> values;    // in file order
  std::vector<GgufTensor> tensors;  // in file order
};

// Everything in the result is a view into `bytes`. Errors start with `name` and name the field.
Result<GgufPart> parse_gguf_part(std::span<const std::byte> bytes, const std::string& name);

}  // namespace spillway::model
