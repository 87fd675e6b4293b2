// What `spillway inspect` prints of a model file. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/paged_kv.h"
#include "model/config.h"
#include "model/gguf.h"

namespace spillway::model {

// KV bytes that one sequence of `tokens` holds, over all groups; window groups hold their window
// and a page more.
uint64_t kv_bytes_of_sequence(std::span<const kernels::KvGroupLayout> groups, uint64_t tokens);

// The longest sequence whose KV fits in `kv_bytes`, at most `context_tokens_max`; 0: none does.
uint32_t longest_context(std::span<const kernels::KvGroupLayout> groups, uint64_t kv_bytes,
                         uint32_t context_tokens_max);

// Several lines: architecture, sizes, tensor types, KV bytes per token of each group, the largest
// context that fits `kv_bytes`.
std::string inspect_text(const GgufFile& file, const ModelConfig& config,
                         std::span<const kernels::KvGroupLayout> groups, uint64_t kv_bytes);

}  // namespace spillway::model
