// Attention for AVX-512.
#include <cstring>

#include "kernels/attention_levels.h"
#include "kernels/exp2_polynomial.h"
#include "kernels/lanes_avx512.h"

#define SPILLWAY_TARGET SPILLWAY_AVX512

namespace spillway::kernels {
namespace avx512 {
namespace {

constexpr int kRowsAtOnce = 6;
constexpr int kVectorsAtOnce = 4;

#include "kernels/attention_tile.inc"

}  // namespace
}  // namespace avx512

const AttentionKernels& attention_kernels_avx512() { return avx512::kKernels; }

}  // namespace spillway::kernels
