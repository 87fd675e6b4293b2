// The names of --kv-cache-dtype.
#pragma once

#include <string_view>

#include "kernels/paged_kv.h"
#include "runtime/result.h"

namespace spillway::server {

inline Result<kernels::KvType> kv_type_of(std::string_view name) {
  if (name == "auto" || name == "f16" || name == "float16") return kernels::KvType::kF16;
  if (name == "bf16" || name == "bfloat16") return kernels::KvType::kBf16;
  if (name == "f32" || name == "float32") return kernels::KvType::kF32;
  return invalid_argument("'" + std::string(name) + "' is no KV type: take auto, f16, bf16 or f32");
}

}  // namespace spillway::server
