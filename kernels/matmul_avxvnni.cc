// Matrix products with AVX-VNNI, the 256-bit byte dot product of desktop chips.
#include <immintrin.h>

#include "kernels/iq4_nl.h"
#include "kernels/matmul_job.h"
#include "runtime/check.h"

#define SPILLWAY_TARGET __attribute__((target("avx2,fma,f16c,avxvnni")))
#define SPILLWAY_INLINE [[maybe_unused]] SPILLWAY_TARGET __attribute__((always_inline)) inline

namespace spillway::kernels {
namespace avxvnni {
namespace {

#include "kernels/matmul_vectors_avx2.inc"

constexpr bool kByteDots = true;
SPILLWAY_INLINE Ints dot_4(Ints sum, Ints codes, Ints values) {
  return _mm256_dpbusd_avx_epi32(sum, codes, values);
}

#include "kernels/matmul_tile.inc"

}  // namespace
}  // namespace avxvnni

void matmul_panels_avxvnni(const MatmulJob& job, uint32_t first, uint32_t end) {
  avxvnni::run_panels(job, first, end);
}

}  // namespace spillway::kernels
