// How much of a GPU's memory KV pages get. Pure.
#pragma once

#include <cstdint>

#include "kernels/cuda/gpus.h"
#include "runtime/result.h"

namespace spillway::server {

// All of the `utilization` (over 0, at most 1) of its memory that nobody has, less `needed_bytes`
// that are still to be taken for something else. An error says what to do where nothing is left.
Result<uint64_t> kv_bytes_on_gpu(const kernels::GpuMemory& memory, double utilization,
                                 uint64_t needed_bytes);

}  // namespace spillway::server
