#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/matmul_job.h"
#include "kernels/share.h"
#include "runtime/check.h"

namespace spillway::kernels {

void matmul(Team& team, const PackedMatrix& w, const Activations& x, float* y, size_t y_stride) {
  CHECK(x.inputs == w.shape().inputs);
  CHECK(y_stride >= w.shape().outputs);
  const MatmulJob job{.w = &w, .x = x, .y = y, .y_stride = y_stride};
  const Share panels = share_of(team, w.panels());
  const uint32_t first = panels.first;
  const uint32_t end = panels.end;
  if (w.format().is_quantized() && w.level() == CpuLevel::kAvx512) {
    return matmul_panels_avx512(job, first, end);
  }
  matmul_reference(w, x, first * kPanelColumns, std::min(end * kPanelColumns, w.shape().outputs), y,
                   y_stride);
}

}  // namespace spillway::kernels
