#include "kernels/cuda/blas_plan.h"

namespace spillway::kernels::cuda {
namespace {

// Null: refused.
template <class Handle, class Create, class... Arguments>
BlasOwned<Handle> make(Create create, cublasStatus_t (*destroy)(Handle), Arguments... arguments) {
  Handle made = nullptr;
  if (create(&made, arguments...) != CUBLAS_STATUS_SUCCESS) made = nullptr;
  return {made, destroy};
}

bool set_transposed(const BlasCalls& calls, cublasLtMatmulDesc_t product) {
  const cublasOperation_t transposed = CUBLAS_OP_T;
  return calls.product_set(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) ==
         CUBLAS_STATUS_SUCCESS;
}

bool set_preferences(const BlasCalls& calls, cublasLtMatmulPreference_t preference,
                     uint64_t workspace_bytes) {
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    return calls.preference_set(preference, name, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
  };
  return set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kBlasInputAlignment) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kBlasInputAlignment) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kBlasOutputAlignment) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kBlasOutputAlignment);
}

}  // namespace

std::optional<BlasPlan> make_blas_plan(const BlasCalls& calls, cublasLtHandle_t library,
                                       const BlasShape& shape, size_t workspace_bytes) {
  const cudaDataType half = shape.type == HalfType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
  const auto layout = [&](cudaDataType type, uint64_t rows, uint64_t columns, int64_t stride) {
    return make<cublasLtMatrixLayout_t>(calls.layout_create, calls.layout_destroy, type, rows,
                                        columns, stride);
  };
  BlasPlan plan{make<cublasLtMatmulDesc_t>(calls.product_create, calls.product_destroy,
                                           CUBLAS_COMPUTE_32F, CUDA_R_32F),
                layout(half, shape.inputs, shape.outputs, shape.inputs),
                layout(half, shape.inputs, shape.rows, shape.inputs),
                layout(CUDA_R_32F, shape.outputs, shape.rows, shape.stride),
                {}};
  const auto preference =
      make<cublasLtMatmulPreference_t>(calls.preference_create, calls.preference_destroy);
  if (!plan.product || !plan.weights || !plan.x || !plan.y || !preference) return {};
  if (!set_transposed(calls, plan.product.get())) return {};
  if (!set_preferences(calls, preference.get(), workspace_bytes)) return {};
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t chosen =
      calls.choose(library, plan.product.get(), plan.weights.get(), plan.x.get(), plan.y.get(),
                   plan.y.get(), preference.get(), 1, &best, &found);
  if (chosen != CUBLAS_STATUS_SUCCESS || found == 0) return {};
  if (best.state != CUBLAS_STATUS_SUCCESS || best.workspaceSize > workspace_bytes) return {};
  plan.algorithm = best.algo;
  return plan;
}

}  // namespace spillway::kernels::cuda
