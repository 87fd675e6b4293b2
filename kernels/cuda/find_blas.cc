#include <array>

#include "kernels/cuda/blas_calls.h"

namespace spillway::kernels::cuda {

Result<BlasCalls> load_blas_calls() {
  const std::array<std::string, 1> names{"libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)};
  return load_blas_calls_from(names);
}

}  // namespace spillway::kernels::cuda
