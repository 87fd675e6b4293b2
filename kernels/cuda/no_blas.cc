// For a build whose toolkit has no cublasLt.h.
#include "kernels/cuda/library_products.h"

namespace spillway::kernels::cuda {

Result<std::unique_ptr<LibraryProducts>> make_library_products(CUstream_st*,
                                                               const LibraryProductOptions&) {
  return Error{ErrorCode::kUnavailable,
               "this spillway was built without cuBLASLt: build it where cublasLt.h is found "
               "(package libcublas-dev-*), which the line 'CUDA: ...' of cmake tells; or leave "
               "--no-batch-invariant out"};
}

}  // namespace spillway::kernels::cuda
