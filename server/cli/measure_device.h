// How fast a device computes a model and copies its pages, as the engine would let it.
//
// Blocks the calling thread for about `seconds`, longer where one step of the model takes longer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/tier_rates.h"
#include "kernels/device.h"
#include "model/transformer.h"
#include "runtime/result.h"

namespace spillway::server {

// By the position in the context: chunks of prefill at doubling positions, and decode. The KV
// before a chunk is not computed, for time does not depend on its values; pages beyond 256 MiB of
// each group stand for one another.
struct ComputeFigures {
  struct Prefill {
    uint32_t position = 0;
    double tokens_per_s = 0;
  };
  std::vector<Prefill> prefill;  // ascending, from position 0
  uint32_t decode_position = 0;
  double decode_tokens_per_s = 0;  // of one stream
  cache::ComputeRate rate;
};

// REQUIRES: nothing else runs on the transformer; it is bound to other pages afterwards.
Result<ComputeFigures> measure_compute(model::Transformer& model, kernels::Device& device,
                                       double seconds);

struct CopyFigures {
  double bytes_per_s = 0;  // of pages, by one copy stream
  double page_s = 0;       // for one page alone
};

// Copies pages of `page_bytes` within `memory`, for `seconds`.
// REQUIRES: `memory` holds two pages or more, and is written to already.
CopyFigures measure_copies(kernels::Device& device, std::span<std::byte> memory,
                           uint64_t page_bytes, double seconds);

}  // namespace spillway::server
