// A packed matrix where a GPU under test reaches it: matrices lie in mappings of their own.
#pragma once

#include <algorithm>

#include "kernels/cuda/operators.h"
#include "kernels/matrix.h"
#include "tests/kernels/cuda/aligned_bytes.h"

namespace spillway::kernels::cuda {

class MatrixOnGpu {
 public:
  explicit MatrixOnGpu(const PackedMatrix& w) : panels_(w.bytes(), 0) {
    std::copy_n(w.panel(0), w.bytes(), panels_.data());
    view_ = {w.type(), panels_.data(), w.bytes() / w.panels(), w.shape().outputs, w.shape().inputs};
  }
  MatrixOnGpu(const MatrixOnGpu&) = delete;
  MatrixOnGpu& operator=(const MatrixOnGpu&) = delete;

  DeviceMatrix view() const { return view_; }

 private:
  AlignedBytes panels_;
  DeviceMatrix view_;
};

}  // namespace spillway::kernels::cuda
