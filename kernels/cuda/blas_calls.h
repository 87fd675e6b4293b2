// The calls of cuBLASLt that we make, found at run time: the program starts without the library,
// and only who asks for it need have it. Any thread.
#pragma once

#include <span>
#include <string>

#include "kernels/cuda/blas_api.h"
#include "runtime/result.h"

namespace spillway::kernels::cuda {

struct BlasCalls {
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) product_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) product_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) product_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
};

// From the first of these files, or names for the dynamic linker, that can be loaded; it stays for
// as long as the process. kUnavailable: none can, or it is not of the major version that this
// program was built for, or lacks a call.
Result<BlasCalls> load_blas_calls_from(std::span<const std::string> names);

// Under the name that the library has by itself. The tests' simulated library has its own of this.
Result<BlasCalls> load_blas_calls();

}  // namespace spillway::kernels::cuda
