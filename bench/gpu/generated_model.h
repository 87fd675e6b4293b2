// A model with random weights, for a machine that no real one can be fetched to: a GGUF file of the
// llama architecture in Q8_0, without a tokenizer.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/result.h"

namespace spillway::bench {

struct GeneratedModel {
  uint32_t layers = 16;
  uint32_t embedding = 2048;  // a multiple of 32, as all of these but the layers
  uint32_t feed_forward = 8192;
  uint32_t heads = 32;
  uint32_t kv_heads = 8;
  uint32_t vocabulary = 32000;
  uint32_t context = 16384;
};

// 1.1 GB in some seconds. The same shape, the same bytes.
Result<> write_model(const std::string& path, const GeneratedModel& model);

}  // namespace spillway::bench
