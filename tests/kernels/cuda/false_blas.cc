// Libraries that are not the cuBLASLt that is wanted, each in its own way.
#include <cstddef>

extern "C" {
#if defined(SPILLWAY_FALSE_BLAS_OLD)
size_t cublasLtGetVersion() { return 120803; }
#elif defined(SPILLWAY_FALSE_BLAS_PARTIAL)
size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusName(int) { return ""; }
#else
int spillway_false_blas() { return 0; }
#endif
}
