// Attention for AVX2 and FMA.
#include <cstring>

#include "kernels/attention_levels.h"
#include "kernels/exp2_polynomial.h"
#include "kernels/lanes_avx2.h"

#define SPILLWAY_TARGET SPILLWAY_AVX2

namespace spillway::kernels {
namespace avx2 {
namespace {

constexpr int kRowsAtOnce = 6;
constexpr int kVectorsAtOnce = 1;

#include "kernels/attention_tile.inc"

}  // namespace
}  // namespace avx2

const AttentionKernels& attention_kernels_avx2() { return avx2::kKernels; }

}  // namespace spillway::kernels
