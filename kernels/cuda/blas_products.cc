// LibraryProducts on cuBLASLt.
//
// Bound: a plan is kept for each number of rows that a step had, up to the tile's, and each kind of
// matrix: some 5 * 480 of half a kilobyte on the host where tiles have 512 rows.
#include <algorithm>
#include <map>
#include <utility>

#include "kernels/cuda/blas_plan.h"
#include "kernels/cuda/library_products.h"
#include "kernels/packed_format.h"
#include "runtime/check.h"
#include "runtime/log.h"

namespace spillway::kernels::cuda {
namespace {

constexpr int kRefused = 999;  // cudaErrorUnknown

constexpr size_t aligned(size_t bytes) {
  return (bytes + kBlasInputAlignment - 1) / kBlasInputAlignment * kBlasInputAlignment;
}

HalfType half_type_for(TensorType weights) {
  return weights == TensorType::kF16 ? HalfType::kF16 : HalfType::kBf16;
}

class BlasProducts final : public LibraryProducts {
 public:
  BlasProducts(CUstream_st* stream, const BlasCalls& calls, cublasLtHandle_t library,
               const LibraryProductOptions& options)
      : stream_(stream), calls_(calls), library_(library, calls.destroy), options_(options) {}

  Result<> reserve(Device& device, const ProductLimits& limits) override;
  bool takes(const DeviceMatrix& w, uint32_t rows) override;
  int enqueue(const LibraryProductArgs& args) override;
  uint64_t launches_max(const DeviceMatrix& w) const override;

 private:
  // A matrix is multiplied by so many outputs at a time.
  uint32_t outputs_together(const DeviceMatrix& w) const;
  // Null: the library computes no such product.
  const BlasPlan* plan_for(const DeviceMatrix& w, uint32_t rows, uint32_t outputs);
  int multiply(const BlasPlan& plan, float* y);

  CUstream_st* const stream_;
  const BlasCalls calls_;
  const BlasOwned<cublasLtHandle_t> library_;
  const LibraryProductOptions options_;
  ProductLimits limits_;
  size_t weight_halves_ = 0;
  DeviceMemory memory_;
  uint16_t* weights_ = nullptr;  // (outputs, inputs)
  uint16_t* x_ = nullptr;        // (row, inputs)
  std::byte* workspace_ = nullptr;
  std::map<BlasShape, std::optional<BlasPlan>> plans_;
};

Result<> BlasProducts::reserve(Device& device, const ProductLimits& limits) {
  CHECK(memory_.data == nullptr);
  const size_t panel = size_t{kPanelColumns} * limits.inputs;
  weight_halves_ = std::max(panel, std::min(options_.weight_bytes / 2, limits.elements + panel));
  const size_t weight_bytes = aligned(weight_halves_ * 2);
  const size_t x_bytes = aligned(size_t{limits.rows} * limits.inputs * 2);
  auto memory = device.allocate(weight_bytes + x_bytes + options_.workspace_bytes);
  if (!memory) {
    return Error{
        memory.error().code,
        "no memory for products by cuBLASLt (--no-batch-invariant): " + memory.error().message};
  }
  memory_ = *std::move(memory);
  weights_ = reinterpret_cast<uint16_t*>(memory_.data);
  x_ = reinterpret_cast<uint16_t*>(memory_.data + weight_bytes);
  workspace_ = memory_.data + weight_bytes + x_bytes;
  limits_ = limits;
  return {};
}

uint32_t BlasProducts::outputs_together(const DeviceMatrix& w) const {
  constexpr size_t kWhole = 128;  // whole tiles of the library's, where so many fit
  const size_t fit = weight_halves_ / w.inputs;
  const size_t unit = fit >= kWhole ? kWhole : kPanelColumns;
  return static_cast<uint32_t>(std::min<size_t>(w.outputs, fit / unit * unit));
}

const BlasPlan* BlasProducts::plan_for(const DeviceMatrix& w, uint32_t rows, uint32_t outputs) {
  const BlasShape shape{.type = half_type_for(w.type),
                        .outputs = outputs,
                        .inputs = w.inputs,
                        .rows = rows,
                        .stride = w.outputs};
  const auto [found, is_new] = plans_.try_emplace(shape);
  if (is_new) {
    found->second = make_blas_plan(calls_, library_.get(), shape, options_.workspace_bytes);
    if (!found->second) {
      spdlog::warn("cublaslt refuses outputs={} inputs={} rows={}: our own kernels compute it",
                   outputs, w.inputs, rows);
    }
  }
  return found->second ? &*found->second : nullptr;
}

bool BlasProducts::takes(const DeviceMatrix& w, uint32_t rows) {
  const bool quantized = packed_format(w.type).is_quantized();
  const uint32_t rows_min = quantized ? options_.quantized_rows_min : options_.float_rows_min;
  if (w.type == TensorType::kF32 || w.inputs % kBlockInputs != 0) return false;
  if (rows == 0 || rows < rows_min || rows > limits_.rows || w.inputs > limits_.inputs)
    return false;
  const uint32_t together = outputs_together(w);
  for (uint32_t first = 0; first < w.outputs; first += together) {
    if (plan_for(w, rows, std::min(together, w.outputs - first)) == nullptr) return false;
  }
  return true;
}

int BlasProducts::enqueue(const LibraryProductArgs& args) {
  CHECK(reinterpret_cast<uintptr_t>(args.y) % kBlasOutputAlignment == 0);
  const DeviceMatrix& w = args.w;
  const HalfType type = half_type_for(w.type);
  if (const int error = narrow(stream_, {.x = args.x,
                                         .to = x_,
                                         .x_stride = w.inputs,
                                         .rows = args.rows,
                                         .n = w.inputs,
                                         .type = type})) {
    return error;
  }
  const uint32_t together = outputs_together(w);
  for (uint32_t first = 0; first < w.outputs; first += together) {
    const uint32_t outputs = std::min(together, w.outputs - first);
    const int error = unpack(
        stream_, {.w = w, .first_output = first, .outputs = outputs, .to = weights_, .type = type});
    if (error != 0) return error;
    const BlasPlan* const plan = plan_for(w, args.rows, outputs);
    CHECK(plan != nullptr);
    if (const int refused = multiply(*plan, args.y + first)) return refused;
  }
  return 0;
}

uint64_t BlasProducts::launches_max(const DeviceMatrix& w) const {
  constexpr uint64_t kOfAPart = 4;  // unpacks, multiplies; the library may add up apart, and clear
  const uint32_t together = outputs_together(w);
  return 1 + kOfAPart * ((w.outputs + together - 1) / together);
}

int BlasProducts::multiply(const BlasPlan& plan, float* y) {
  const float one = 1, zero = 0;
  const cublasStatus_t status =
      calls_.multiply(library_.get(), plan.product.get(), &one, weights_, plan.weights.get(), x_,
                      plan.x.get(), &zero, y, plan.y.get(), y, plan.y.get(), &plan.algorithm,
                      workspace_, options_.workspace_bytes, stream_);
  if (status == CUBLAS_STATUS_SUCCESS) return 0;
  spdlog::error("cublaslt status={}", calls_.status_name(status));
  return kRefused;
}

}  // namespace

Result<std::unique_ptr<LibraryProducts>> make_library_products(
    CUstream_st* stream, const LibraryProductOptions& options) {
  const auto calls = load_blas_calls();
  if (!calls) return calls.error();
  cublasLtHandle_t library = nullptr;
  if (const cublasStatus_t status = calls->create(&library); status != CUBLAS_STATUS_SUCCESS) {
    return Error{ErrorCode::kUnavailable,
                 std::string("cuBLASLt does not start on this GPU: ") + calls->status_name(status)};
  }
  return std::make_unique<BlasProducts>(stream, *calls, library, options);
}

}  // namespace spillway::kernels::cuda
