#include "kernels/matmul.h"

#include "kernels/matmul_job.h"
#include "kernels/share.h"
#include "runtime/check.h"

namespace spillway::kernels {

void matmul(Team& team, const PackedMatrix& w, const Activations& x, float* y, size_t y_stride) {
  CHECK(x.inputs == w.shape().inputs);
  CHECK(y_stride >= w.shape().outputs);
  if (x.rows == 0) return;
  const MatmulJob job{.w = &w, .x = x, .y = y, .y_stride = y_stride};
  const Share panels = share_of(team, w.panels());
  switch (w.level()) {
    case CpuLevel::kBaseline:
      return matmul_panels_baseline(job, panels.first, panels.end);
    case CpuLevel::kAvx2:
      return matmul_panels_avx2(job, panels.first, panels.end);
    case CpuLevel::kAvxVnni:
      return matmul_panels_avxvnni(job, panels.first, panels.end);
    case CpuLevel::kAvx512:
      return matmul_panels_avx512(job, panels.first, panels.end);
  }
}

}  // namespace spillway::kernels
