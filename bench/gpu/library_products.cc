// The same products by cuBLASLt as --no-batch-invariant has them, weights made 16 bits and all, and
// our own for what products.cc does not measure: BF16 weights.
#include <algorithm>
#include <memory>
#include <string>

#include "bench/gpu/bench_run.h"
#include "kernels/cuda/library_products.h"
#include "kernels/matrix.h"

namespace spillway::bench {
namespace {

using kernels::DeviceMemory;
using kernels::TensorType;
using kernels::cuda::DeviceMatrix;
using kernels::cuda::LibraryProductArgs;
using kernels::cuda::LibraryProducts;

constexpr TensorType kTypes[] = {TensorType::kQ4_0, TensorType::kBf16};
constexpr uint32_t kColumns = 16;  // of a panel

struct Operands {
  DeviceMemory weights, x, y;
  LibraryProductArgs args;
};

Result<Operands> make_operands(BenchRun& run, TensorType type, uint32_t rows) {
  const uint32_t outputs = run.sizes().outputs;
  const uint32_t inputs = run.sizes().inputs;
  const std::vector<std::byte> file(kernels::row_bytes(type, inputs) * kColumns);
  const size_t panel = kernels::PackedMatrix::pack(kernels::CpuLevel::kBaseline, type, file.data(),
                                                   {kColumns, inputs})
                           .bytes();
  auto weights = run.random_memory((outputs + kColumns - 1) / kColumns * panel);
  auto x = run.random_memory(size_t{rows} * inputs * sizeof(float));
  auto y = run.random_memory(size_t{rows} * outputs * sizeof(float));
  for (const auto* memory : {&weights, &x, &y}) {
    if (!*memory) return memory->error();
  }
  Operands out{*std::move(weights), *std::move(x), *std::move(y), {}};
  out.args = {.w = {.type = type,
                    .panels = out.weights.data,
                    .panel_bytes = panel,
                    .outputs = outputs,
                    .inputs = inputs},
              .x = reinterpret_cast<const float*>(out.x.data),
              .y = reinterpret_cast<float*>(out.y.data),
              .rows = rows};
  return out;
}

Figure figure_of(const char* name, const char* arithmetic, const LibraryProductArgs& args) {
  return {.name = name,
          .what = std::string(kernels::tensor_type_name(args.w.type)) + ", " +
                  std::to_string(args.rows) + " rows",
          .operations = 2.0 * args.rows * args.w.outputs * args.w.inputs,
          .arithmetic = arithmetic};
}

Result<> measure_library(BenchRun& run, LibraryProducts& products, const Operands& operands) {
  const LibraryProductArgs& args = operands.args;
  if (!products.takes(args.w, args.rows)) {
    run.recorder().skip("matmul_cublaslt",
                        "it has no algorithm for " + std::to_string(args.rows) + " rows");
    return {};
  }
  return run.measure(figure_of("matmul_cublaslt", "bf16", args), run.device().compute(), [&] {
    run.device().compute().launch([&](kernels::Team&) {
      run.device().take_error_of("product by cuBLASLt", products.enqueue(args));
    });
  });
}

// Floats have one kernel for any number of rows.
Result<> measure_floats(BenchRun& run, const Operands& operands) {
  const LibraryProductArgs& args = operands.args;
  return run.measure(figure_of("matmul", "f32", args), run.device().compute(), [&] {
    run.enqueue("matmul_floats", kernels::cuda::matmul_floats,
                {.w = args.w,
                 .x = args.x,
                 .y = args.y,
                 .x_stride = args.w.inputs,
                 .y_stride = args.w.outputs,
                 .rows = args.rows});
  });
}

Result<> measure_type(BenchRun& run, LibraryProducts* products, TensorType type) {
  for (const uint32_t rows : run.sizes().matmul_rows) {
    const auto operands = make_operands(run, type, rows);
    if (!operands) return operands.error();
    if (products != nullptr) {
      if (auto done = measure_library(run, *products, *operands); !done) return done;
    }
    if (type != TensorType::kBf16) continue;
    if (auto done = measure_floats(run, *operands); !done) return done;
  }
  return {};
}

Result<std::unique_ptr<LibraryProducts>> make_products(BenchRun& run) {
  std::unique_ptr<LibraryProducts> made;
  std::string why;
  run.device().compute().launch([&](kernels::Team&) {
    auto products =
        kernels::cuda::make_library_products(run.device().native(run.device().compute()),
                                             {.quantized_rows_min = 1, .float_rows_min = 1});
    if (products) {
      made = *std::move(products);
    } else {
      why = products.error().message;
    }
  });
  if (made == nullptr) {
    run.recorder().skip("matmul_cublaslt", why);
    return made;
  }
  const BenchSizes& sizes = run.sizes();
  const auto reserved =
      made->reserve(run.device(), {.rows = *std::ranges::max_element(sizes.matmul_rows),
                                   .inputs = sizes.inputs,
                                   .elements = size_t{sizes.outputs} * sizes.inputs});
  if (!reserved) return reserved.error();
  return made;
}

}  // namespace

Result<> measure_library_products(BenchRun& run) {
  const auto products = make_products(run);
  if (!products) return products.error();
  for (const TensorType type : kTypes) {
    if (auto done = measure_type(run, products->get(), type); !done) return done;
  }
  return {};
}

}  // namespace spillway::bench
