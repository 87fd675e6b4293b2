// Attention for the x86-64-v2 baseline.
#include <cstring>

#include "kernels/attention_levels.h"
#include "kernels/exp2_polynomial.h"
#include "kernels/lanes_baseline.h"

#define SPILLWAY_TARGET

namespace spillway::kernels {
namespace baseline {
namespace {

#include "kernels/attention_tile.inc"
#include "kernels/lanes_math.inc"

constexpr AttentionKernels kKernels{.fused = false, .narrow = narrow};

}  // namespace
}  // namespace baseline

const AttentionKernels& attention_kernels_baseline() { return baseline::kKernels; }

}  // namespace spillway::kernels
