// The rotation angles of positions, each computed once: in double a row takes some microseconds
// (rope_angles()), which a step of many rows for a GPU cannot spend on the engine's thread.
//
// Memory: 8 bytes a rotated dimension and position, touched as positions come up: at 128 dimensions
// 128 MB for a context of 131,072, 1 MB for the first 1,024 tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace spillway::model {

// One thread at a time.
class AngleCache {
 public:
  AngleCache(kernels::RopeTable table, uint32_t positions);

  // (2, dims): as rope_angles() gives them; good until the next call.
  std::span<const float> at(uint32_t position);
  uint32_t dims() const { return table_.dims; }

 private:
  const kernels::RopeTable table_;
  const size_t count_;               // floats of a position
  std::vector<bool> known_;          // (position)
  std::unique_ptr<float[]> angles_;  // (position, count_), undefined where not known
  std::vector<float> beyond_;        // of a position past those
};

}  // namespace spillway::model
