// The shape of a step's result, as its batch asks for it.
#pragma once

#include <cstddef>

#include "model/runner.h"

namespace spillway::model {

// Makes places for the samples, which hold whatever they held before, and forgets the rest of an
// earlier step's. Returns the batch's rows.
inline size_t shape_result(const StepBatch& batch, StepResult& result) {
  size_t rows = 0;
  result.stamps.clear();
  result.failure.clear();
  result.samples.resize(batch.sequences.size());
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    rows += batch.sequences[s].tokens.size();
    result.samples[s].resize(batch.sequences[s].samples.size());
  }
  return rows;
}

}  // namespace spillway::model
