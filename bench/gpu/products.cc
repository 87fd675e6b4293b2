// Products by quantised weights: few rows, which read weights, and many, which compute. Matrices
// take turns where there are few rows, so that none is found in a cache.
#include <algorithm>
#include <string>

#include "bench/gpu/bench_run.h"
#include "kernels/cuda/operators.h"
#include "kernels/matrix.h"

namespace spillway::bench {
namespace {

using kernels::DeviceMemory;
using kernels::TensorType;
using kernels::cuda::MatmulArgs;

constexpr TensorType kTypes[] = {TensorType::kQ4_0, TensorType::kQ8_0, TensorType::kQ4_K};
constexpr uint32_t kFewRows = 16;  // so many and fewer are bound by memory

size_t panel_bytes(TensorType type, uint32_t inputs) {
  constexpr uint32_t kColumns = 16;
  const std::vector<std::byte> file(kernels::row_bytes(type, inputs) * kColumns);
  return kernels::PackedMatrix::pack(kernels::CpuLevel::kBaseline, type, file.data(),
                                     {kColumns, inputs})
      .bytes();
}

// Activations of `rows` rows and a place for their products.
struct Rows {
  DeviceMemory values, scales, sums, halves, y;
  kernels::cuda::DeviceActivations view;
};

Result<Rows> make_rows(BenchRun& run, uint32_t rows, uint32_t inputs, uint32_t outputs) {
  Rows out;
  const size_t blocks = size_t{rows} * inputs / 32;
  struct Part {
    DeviceMemory* to;
    size_t bytes;
  };
  for (const auto& [to, bytes] :
       {Part{&out.values, size_t{rows} * inputs}, Part{&out.scales, blocks * sizeof(float)},
        Part{&out.sums, blocks * sizeof(float)}, Part{&out.halves, 2 * blocks * sizeof(float)},
        Part{&out.y, size_t{rows} * outputs * sizeof(float)}}) {
    auto memory = run.random_memory(bytes);
    if (!memory) return memory.error();
    *to = std::move(*memory);
  }
  out.view = {.rows = rows,
              .inputs = inputs,
              .values = reinterpret_cast<int8_t*>(out.values.data),
              .scales = reinterpret_cast<float*>(out.scales.data),
              .scaled_sums = reinterpret_cast<float*>(out.sums.data),
              .half_scaled_sums = reinterpret_cast<float*>(out.halves.data)};
  return out;
}

Result<> measure_rows(BenchRun& run, TensorType type, const DeviceMemory& weights,
                      size_t matrix_bytes, uint32_t rows) {
  const BenchSizes& sizes = run.sizes();
  const auto at = make_rows(run, rows, sizes.inputs, sizes.outputs);
  if (!at) return at.error();
  const bool few = rows <= kFewRows;
  const size_t matrices = few ? weights.bytes / matrix_bytes : 1;
  const size_t panels = (sizes.outputs + 15) / 16;
  const Figure figure{
      .name = "matmul",
      .what = std::string(kernels::tensor_type_name(type)) + ", " + std::to_string(rows) + " rows",
      .bytes = few ? static_cast<double>(matrices * matrix_bytes) : 0,
      .operations = 2.0 * rows * sizes.outputs * sizes.inputs * static_cast<double>(matrices),
      .arithmetic = few ? "" : "int8",
      .in_device = few};
  return run.measure(figure, run.device().compute(), [&] {
    for (size_t i = 0; i < matrices; ++i) {
      const MatmulArgs args{.w = {.type = type,
                                  .panels = weights.data + i * matrix_bytes,
                                  .panel_bytes = matrix_bytes / panels,
                                  .outputs = sizes.outputs,
                                  .inputs = sizes.inputs},
                            .x = at->view,
                            .y = reinterpret_cast<float*>(at->y.data),
                            .y_stride = sizes.outputs};
      run.enqueue("matmul", kernels::cuda::matmul, args);
    }
  });
}

}  // namespace

Result<> measure_products(BenchRun& run) {
  const BenchSizes& sizes = run.sizes();
  for (const TensorType type : kTypes) {
    const size_t panels = (sizes.outputs + 15) / 16;
    const size_t bytes = panels * panel_bytes(type, sizes.inputs);
    const size_t matrices = std::max<size_t>(sizes.matrix_bytes / bytes, 1);
    const auto weights = run.random_memory(matrices * bytes);
    if (!weights) return weights.error();
    for (const uint32_t rows : sizes.matmul_rows) {
      if (const auto done = measure_rows(run, type, *weights, bytes, rows); !done) return done;
    }
  }
  return Result<>();
}

}  // namespace spillway::bench
