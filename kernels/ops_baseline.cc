// The row operators for the x86-64-v2 baseline.
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/exp2_polynomial.h"
#include "kernels/lanes_baseline.h"
#include "kernels/ops_levels.h"

#define SPILLWAY_TARGET

namespace spillway::kernels {
namespace baseline {
namespace {

#include "kernels/ops_rows.inc"

}  // namespace
}  // namespace baseline

const RowOps& row_ops_baseline() { return baseline::kRowOps; }

}  // namespace spillway::kernels
