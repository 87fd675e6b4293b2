#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/share.h"
#include "runtime/check.h"

namespace spillway::kernels {

void matmul(Team& team, const PackedMatrix& w, const Activations& x, float* y, size_t y_stride) {
  CHECK(x.inputs == w.shape().inputs);
  CHECK(y_stride >= w.shape().outputs);
  const Share panels = share_of(team, w.panels());
  const uint32_t first = panels.first * kPanelColumns;
  const uint32_t end = std::min(panels.end * kPanelColumns, w.shape().outputs);
  matmul_reference(w, x, first, end, y, y_stride);
}

}  // namespace spillway::kernels
