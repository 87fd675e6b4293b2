// Attention for the x86-64-v2 baseline.
#include <cstring>

#include "kernels/attention_levels.h"
#include "kernels/exp2_polynomial.h"
#include "kernels/lanes_baseline.h"

#define SPILLWAY_TARGET

namespace spillway::kernels {
namespace baseline {
namespace {

constexpr int kRowsAtOnce = 2;
constexpr int kVectorsAtOnce = 1;

#include "kernels/attention_tile.inc"

}  // namespace
}  // namespace baseline

const AttentionKernels& attention_kernels_baseline() { return baseline::kKernels; }

}  // namespace spillway::kernels
