// Matrix products with AVX2 and FMA.
#include <immintrin.h>

#include "kernels/iq4_nl.h"
#include "kernels/matmul_job.h"
#include "runtime/check.h"

#define SPILLWAY_TARGET __attribute__((target("avx2,fma,f16c")))
#define SPILLWAY_INLINE [[maybe_unused]] SPILLWAY_TARGET __attribute__((always_inline)) inline

namespace spillway::kernels {
namespace avx2 {
namespace {

#include "kernels/matmul_vectors_avx2.inc"

constexpr bool kByteDots = false;
// Signed codes x signed values as magnitude x value with the code's sign, so that pairs fit 16
// bits.
SPILLWAY_INLINE Ints dot_4(Ints sum, Ints codes, Ints values) {
  const Ints pairs = multiply_pairs(magnitudes(codes), with_sign_of(values, codes));
  return add_32(sum, add_pairs_16(pairs));
}

#include "kernels/matmul_tile.inc"

}  // namespace
}  // namespace avx2

void matmul_panels_avx2(const MatmulJob& job, uint32_t first, uint32_t end) {
  avx2::run_panels(job, first, end);
}

}  // namespace spillway::kernels
