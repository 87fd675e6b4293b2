#include "kernels/cuda/blas_calls.h"

#include <dlfcn.h>

namespace spillway::kernels::cuda {
namespace {

std::string advice() {
  const std::string major = std::to_string(CUBLAS_VER_MAJOR);
  return "install cuBLAS " + major + " (libcublas-" + major +
         "-* of NVIDIA's packages, or the CUDA " + major +
         " Toolkit), or name the folder of its libcublasLt.so." + major +
         " in LD_LIBRARY_PATH; or leave --no-batch-invariant out";
}

Error unavailable(const std::string& what) {
  return {ErrorCode::kUnavailable, "cuBLASLt: " + what + "; " + advice()};
}

template <class Call>
bool find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  return call != nullptr;
}

// The name of a call that is not there; null: all are.
const char* find_all(void* library, BlasCalls& calls) {
#define SPILLWAY_FIND(member, name) \
  if (!find(library, #name, calls.member)) return #name
  SPILLWAY_FIND(status_name, cublasLtGetStatusName);
  SPILLWAY_FIND(create, cublasLtCreate);
  SPILLWAY_FIND(destroy, cublasLtDestroy);
  SPILLWAY_FIND(product_create, cublasLtMatmulDescCreate);
  SPILLWAY_FIND(product_destroy, cublasLtMatmulDescDestroy);
  SPILLWAY_FIND(product_set, cublasLtMatmulDescSetAttribute);
  SPILLWAY_FIND(layout_create, cublasLtMatrixLayoutCreate);
  SPILLWAY_FIND(layout_destroy, cublasLtMatrixLayoutDestroy);
  SPILLWAY_FIND(preference_create, cublasLtMatmulPreferenceCreate);
  SPILLWAY_FIND(preference_destroy, cublasLtMatmulPreferenceDestroy);
  SPILLWAY_FIND(preference_set, cublasLtMatmulPreferenceSetAttribute);
  SPILLWAY_FIND(choose, cublasLtMatmulAlgoGetHeuristic);
  SPILLWAY_FIND(multiply, cublasLtMatmul);
#undef SPILLWAY_FIND
  return nullptr;
}

// 13.1.0 is 130100, and 11.4.1 was 11401.
size_t major_of(size_t version) { return version >= 100'000 ? version / 10'000 : version / 1'000; }

}  // namespace

Result<BlasCalls> load_blas_calls_from(std::span<const std::string> names) {
  void* library = nullptr;
  std::string why;
  for (const std::string& name : names) {
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    const char* const reason = dlerror();
    why += (why.empty() ? "" : "; ") + std::string(reason != nullptr ? reason : name);
  }
  if (library == nullptr) return unavailable(why);
  BlasCalls calls;
  if (!find(library, "cublasLtGetVersion", calls.get_version)) {
    return unavailable("the library has no cublasLtGetVersion");
  }
  const size_t version = calls.get_version();
  if (major_of(version) != CUBLAS_VER_MAJOR) {
    return unavailable("the library is of version " + std::to_string(version) + ", not " +
                       std::to_string(CUBLAS_VER_MAJOR));
  }
  if (const char* const missing = find_all(library, calls); missing != nullptr) {
    return unavailable("the library, of version " + std::to_string(version) + ", has no " +
                       missing);
  }
  return calls;
}

}  // namespace spillway::kernels::cuda
