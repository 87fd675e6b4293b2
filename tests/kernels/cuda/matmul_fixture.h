// What the tests of a GPU's matrix products share: rounded rows, random matrices, the plain twin.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "kernels/activations.h"
#include "kernels/cpu_level.h"
#include "kernels/matmul.h"
#include "tests/kernels/cuda/guarded_rows.h"
#include "tests/kernels/cuda/matrix_on_gpu.h"
#include "tests/kernels/random_tensor.h"

namespace spillway::kernels::cuda {

inline constexpr TensorType kQuantisedTypes[] = {
    TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1,
    TensorType::kQ8_0, TensorType::kQ2_K, TensorType::kQ3_K, TensorType::kQ4_K,
    TensorType::kQ5_K, TensorType::kQ6_K, TensorType::kIq4Nl};

// Activations as a GPU keeps them.
struct RoundedRows {
  RoundedRows(uint32_t rows_in, uint32_t inputs_in)
      : rows(rows_in),
        inputs(inputs_in),
        values(size_t{rows_in} * inputs_in),
        scales(values.size() / 32, kPoison),
        scaled_sums(scales),
        half_scaled_sums(2 * scales.size(), kPoison) {}
  DeviceActivations view() {
    return {
        rows, inputs, values.data(), scales.data(), scaled_sums.data(), half_scaled_sums.data()};
  }

  uint32_t rows, inputs;
  std::vector<int8_t> values;
  std::vector<float> scales, scaled_sums, half_scaled_sums;
};

inline RoundedRows rounded_on_gpu(GuardedRows& x) {
  RoundedRows out(x.rows(), static_cast<uint32_t>(x.n()));
  GpuUnderTest gpu;
  gpu.run(quantize, {.x = x.data(), .x_stride = x.stride(), .to = out.view()});
  return out;
}

class CudaMatmulTypeTest : public testing::TestWithParam<TensorType> {
 protected:
  void SetUp() override {
    level_ = available_cpu_levels().back();
    if (level_ == CpuLevel::kBaseline) GTEST_SKIP() << "the twin needs FMA";
  }
  PackedMatrix random_matrix(uint32_t outputs, uint32_t inputs) const {
    const auto file = random_rows(GetParam(), outputs, inputs, outputs + inputs);
    return PackedMatrix::pack(level_, GetParam(), file.data(), {outputs, inputs});
  }
  GuardedRows expected(const PackedMatrix& w, GuardedRows& x) const {
    const auto [outputs, inputs] = w.shape();
    GuardedRows y(x.rows(), outputs, outputs + 5, 0);
    y.poison();
    const ActivationBuffer buffer(level_, size_t{x.rows()} * inputs + 32);
    const Activations view = buffer.view(x.data(), x.stride(), x.rows(), inputs);
    quantize_rows(view, 0, x.rows());
    matmul_reference(w, view, 0, outputs, y.data(), y.stride());
    return y;
  }
  CpuLevel level_ = CpuLevel::kBaseline;
};

}  // namespace spillway::kernels::cuda
