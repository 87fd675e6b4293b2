// The kernels for few and for many rows: every row has the bits of the plain twin in each of them,
// with any number of other rows, so which one computes it does not matter.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "tests/kernels/cuda/matmul_fixture.h"

namespace spillway::kernels::cuda {
namespace {

struct NamedKernel {
  const char* name;
  std::optional<MatmulKernel> kernel;  // none: whichever matmul() chooses
};
constexpr NamedKernel kKernels[] = {{"few", MatmulKernel::kFew},
                                    {"narrow", MatmulKernel::kNarrow},
                                    {"wide", MatmulKernel::kWide},
                                    {"chosen", {}}};

class CudaMatmulManyTest : public CudaMatmulTypeTest {
 protected:
  // The products of the first `rows` rows by every kernel, against the twin's.
  void expect_bits(const PackedMatrix& w, GuardedRows& x, uint32_t rows, const GuardedRows& twin) {
    const uint32_t outputs = w.shape().outputs;
    RoundedRows rounded = rounded_on_gpu(x);
    DeviceActivations view = rounded.view();
    view.rows = rows;
    const MatrixOnGpu on_gpu(w);
    for (const auto& [name, kernel] : kKernels) {
      SCOPED_TRACE(testing::Message()
                   << name << ", " << rows << " rows, " << outputs << " x " << w.shape().inputs);
      GuardedRows y(rows, outputs, outputs + 5, 0);
      y.poison();
      GpuUnderTest gpu;
      const MatmulArgs args{.w = on_gpu.view(), .x = view, .y = y.data(), .y_stride = y.stride()};
      if (kernel) {
        gpu.run(matmul_by, {args, *kernel});
      } else {
        gpu.run(matmul, args);
      }
      for (uint32_t row = 0; row < rows; ++row) {
        for (size_t output = 0; output < y.stride() && (output < outputs || row + 1 < rows);
             ++output) {
          if (output >= outputs) {
            ASSERT_TRUE(std::isnan(y.at(row)[output])) << "past the end of row " << row;
          } else {
            ASSERT_TRUE(same_value(y.at(row)[output], twin.at(row)[output]))
                << "row " << row << " output " << output << ": " << y.at(row)[output] << " and "
                << twin.at(row)[output];
          }
        }
      }
    }
  }
};

TEST_P(CudaMatmulManyTest, each_row_has_its_bits_in_every_kernel_with_any_number_of_rows) {
  const PackedMatrix w = random_matrix(35, 256);
  GuardedRows x(513, 256, 259, 7);
  const GuardedRows twin = expected(w, x);
  for (const uint32_t rows : {0u, 1u, 7u, 8u, 16u, 17u, 64u, 100u, 513u}) {
    expect_bits(w, x, rows, twin);
    if (HasFatalFailure()) return;
  }
}

TEST_P(CudaMatmulManyTest, any_number_of_outputs_and_inputs_gives_the_bits_of_the_plain_twin) {
  const uint32_t unit = block_elements(GetParam());
  for (const uint32_t outputs : {1u, 16u, 129u}) {
    for (const uint32_t blocks : {1u, 2u, 3u, 5u}) {
      const PackedMatrix w = random_matrix(outputs, unit * blocks);
      GuardedRows x(19, w.shape().inputs, w.shape().inputs + 3, blocks);
      expect_bits(w, x, 19, expected(w, x));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CudaMatmulManyTest, a_row_with_a_nan_is_nan_and_leaves_the_others_alone) {
  const PackedMatrix w = random_matrix(17, 256);
  GuardedRows x(20, 256, 256, 1);
  x.at(13)[100] = kPoison;
  const GuardedRows twin = expected(w, x);
  for (uint32_t output = 0; output < 17; ++output) ASSERT_TRUE(std::isnan(twin.at(13)[output]));
  expect_bits(w, x, 20, twin);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaMatmulManyTest, testing::ValuesIn(kQuantisedTypes),
                         [](const auto& type) { return tensor_type_name(type.param); });

}  // namespace
}  // namespace spillway::kernels::cuda
