// The row operators for AVX2 and FMA.
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/exp2_polynomial.h"
#include "kernels/lanes_avx2.h"
#include "kernels/ops_levels.h"

#define SPILLWAY_TARGET SPILLWAY_AVX2

namespace spillway::kernels {
namespace avx2 {
namespace {

#include "kernels/ops_rows.inc"

}  // namespace
}  // namespace avx2

const RowOps& row_ops_avx2() { return avx2::kRowOps; }

}  // namespace spillway::kernels
