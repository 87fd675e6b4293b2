// The row operators for AVX-512.
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/exp2_polynomial.h"
#include "kernels/lanes_avx512.h"
#include "kernels/ops_levels.h"

#define SPILLWAY_TARGET SPILLWAY_AVX512

namespace spillway::kernels {
namespace avx512 {
namespace {

#include "kernels/ops_rows.inc"

}  // namespace
}  // namespace avx512

const RowOps& row_ops_avx512() { return avx512::kRowOps; }

}  // namespace spillway::kernels
