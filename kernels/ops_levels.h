// The tables that row_ops() chooses from. Each is safe to name on any machine; its functions are
// safe to call only where the instruction set is.
#pragma once

#include <cstddef>
#include <limits>

#include "kernels/ops.h"

namespace spillway::kernels {

inline constexpr size_t kStatsStretch = 4096;  // elements of row_stats that are summed in f32
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

const RowOps& row_ops_baseline();
const RowOps& row_ops_avx2();
const RowOps& row_ops_avx512();

}  // namespace spillway::kernels
