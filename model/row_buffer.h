// Scratch for rows of one width, aligned to a cache line; contents undefined until written. One
// owner; workers write rows of their own.
#pragma once

#include <cstddef>

#include "kernels/aligned_floats.h"

namespace spillway::model {

class RowBuffer {
 public:
  RowBuffer(size_t rows, size_t width) : floats_(rows * width), width_(width) {}

  float* data() { return floats_.data(); }  // (rows, width)
  float* row(size_t index) { return floats_.data() + index * width_; }
  size_t width() const { return width_; }

 private:
  kernels::AlignedFloats floats_;
  size_t width_;
};

}  // namespace spillway::model
