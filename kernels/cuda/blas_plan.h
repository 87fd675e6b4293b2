// How cuBLASLt computes one shape of product: its descriptors, and the algorithm that it chose.
//
// Column by column, as the library counts: y, read as (outputs x rows), is the transpose of the
// weights' (inputs x outputs) times x as (inputs x rows).
//
// Thread: that of the products (library_products.h).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>

#include "kernels/cuda/blas_calls.h"
#include "kernels/cuda/operators.h"

namespace spillway::kernels::cuda {

// What of the library belongs to someone, by its own call that ends it.
template <class Handle>
using BlasOwned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

// In bytes: of 16-bit weights and activations, and of y.
inline constexpr uint32_t kBlasInputAlignment = 256;
inline constexpr uint32_t kBlasOutputAlignment = 16;

struct BlasShape {
  HalfType type = HalfType::kBf16;
  uint32_t outputs = 0;
  uint32_t inputs = 0;
  uint32_t rows = 0;
  uint32_t stride = 0;  // floats between two rows of y
  auto operator<=>(const BlasShape&) const = default;
};

struct BlasPlan {
  BlasOwned<cublasLtMatmulDesc_t> product;
  BlasOwned<cublasLtMatrixLayout_t> weights, x, y;
  cublasLtMatmulAlgo_t algorithm;
};

// Asks the library. Nothing: it computes no such product in so much workspace.
std::optional<BlasPlan> make_blas_plan(const BlasCalls& calls, cublasLtHandle_t library,
                                       const BlasShape& shape, size_t workspace_bytes);

}  // namespace spillway::kernels::cuda
