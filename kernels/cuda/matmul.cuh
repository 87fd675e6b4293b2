// y = x W^T for quantised weights: which kernel computes it. All give the same bits, so the choice
// is one of speed alone, and may hang on the number of rows.
#pragma once

#include "kernels/cuda/matmul_few.cuh"
#include "kernels/cuda/matmul_many.cuh"

namespace spillway::kernels::cuda {

// From 17 rows on the few rows' kernel would read weights a third time and more. The wide tile does
// twice the work a byte, where there are tiles of it for most of an H200's 132 SMs.
constexpr MatmulKernel matmul_kernel_for(uint32_t outputs, uint32_t rows) {
  constexpr uint32_t kFewRowsMax = 2 * kMatmulRows;
  constexpr uint64_t kWideTilesMin = 100;
  using Wide = WideTile<TensorType::kQ4_0>;
  if (rows <= kFewRowsMax) return MatmulKernel::kFew;
  const uint64_t across = (outputs + Wide::kOutputs - 1) / Wide::kOutputs;
  const uint64_t down = (rows + Wide::kRows - 1) / Wide::kRows;
  return across * down >= kWideTilesMin ? MatmulKernel::kWide : MatmulKernel::kNarrow;
}

template <class Launcher>
void matmul_by(Launcher& launch, const MatmulByArgs& args) {
  switch (args.kernel) {
    case MatmulKernel::kFew:
      return matmul_few(launch, args.product);
    case MatmulKernel::kNarrow:
      return matmul_many<NarrowTile>(launch, args.product);
    case MatmulKernel::kWide:
      return matmul_many<WideTile>(launch, args.product);
  }
}

template <class Launcher>
void matmul(Launcher& launch, const MatmulArgs& args) {
  matmul_by(launch, {args, matmul_kernel_for(args.w.outputs, args.x.rows)});
}

}  // namespace spillway::kernels::cuda
