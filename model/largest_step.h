// Runs the largest step that an engine may ask for, over pages that mean nothing: all memory that a
// step takes of the device is taken then, so that what is left can go to pages, and no kernel's
// first use is a request's.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "model/runner.h"
#include "runtime/result.h"

namespace spillway::model {

struct LargestStep {
  uint32_t sequences = 1;
  uint32_t rows = 1;            // of all sequences together
  uint32_t context_tokens = 1;  // to which each but the first has come
};

// Blocks the calling thread. Before the engine runs; the runner is bound to pages that are gone
// afterwards. Fails where the device has too little memory, or fails itself.
// REQUIRES: rows <= runner.batch_tokens_max(), sequences <= rows.
Result<> run_largest_step(Runner& runner, kernels::Device& device, const LargestStep& step);

}  // namespace spillway::model
