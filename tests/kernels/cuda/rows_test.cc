// Row operators of a GPU: the bits of their twins, at sizes around those of a block.
#include <gtest/gtest.h>

#include "kernels/cuda/operators.h"
#include "kernels/matrix.h"
#include "kernels/ops_reference.h"
#include "tests/kernels/cuda/guarded_rows.h"
#include "tests/kernels/cuda/matrix_on_gpu.h"
#include "tests/kernels/random_tensor.h"

namespace spillway::kernels::cuda {
namespace {

const reference::Arithmetic kTwin(true);
constexpr float kEps = 1e-5f;

TEST(CudaRowsTest, rms_norm_equals_its_twin_with_and_without_a_residual) {
  for (const uint32_t n : {1u, 15u, 63u, 64u, 65u, 130u, 576u}) {
    for (const uint32_t rows : {0u, 1u, 3u}) {
      for (const bool adds : {false, true}) {
        SCOPED_TRACE(testing::Message() << n << " elements, " << rows << " rows, adds " << adds);
        GuardedRows x(rows, n, n + 5, n), added(rows, n, n + 2, n + 1), y(rows, n, n + 3, 0);
        GuardedRows weight(1, n, n, 9);
        GuardedRows expected_x = x, expected = y.poison();
        for (uint32_t row = 0; row < rows; ++row) {
          for (uint32_t i = 0; i < n && adds; ++i) expected_x.at(row)[i] += added.at(row)[i];
          kTwin.rms_norm(expected.at(row), expected_x.at(row), weight.data(), n, kEps);
        }
        GpuUnderTest gpu;
        gpu.run(rms_norm, {.y = y.data(),
                           .x = x.data(),
                           .added = adds ? added.data() : nullptr,
                           .weight = weight.data(),
                           .y_stride = y.stride(),
                           .x_stride = x.stride(),
                           .added_stride = added.stride(),
                           .rows = rows,
                           .n = n,
                           .eps = kEps});
        y.expect_same(expected);
        x.expect_same(expected_x);
      }
    }
  }
}

// Heads of one row, turned as the twins do it.
void turn_heads(float* row, const RopeArgs& args, const RopeTable& table, const float* angles) {
  for (uint32_t head = 0; head < args.heads; ++head, row += args.head_dim) {
    if (args.weight != nullptr) kTwin.rms_norm(row, row, args.weight, args.head_dim, args.eps);
    kTwin.rope(row, table, angles);
  }
}

TEST(CudaRowsTest, rope_with_and_without_qk_norm_equals_its_twins) {
  struct Case {
    uint32_t heads, head_dim, dims;
  };
  for (const auto& [heads, head_dim, dims] :
       {Case{1, 2, 2}, Case{3, 64, 64}, Case{2, 80, 32}, Case{7, 130, 128}}) {
    for (const bool in_halves : {false, true}) {
      for (const bool norms : {false, true}) {
        SCOPED_TRACE(testing::Message() << heads << " heads of " << head_dim << ", " << dims
                                        << " turned, " << in_halves << norms);
        const uint32_t rows = 2;
        const RopeTable table = make_rope_table(
            {.order = in_halves ? RopeOrder::kHalves : RopeOrder::kPairs, .dims = dims});
        std::vector<float> angles(rows * 2 * dims);
        for (uint32_t row = 0; row < rows; ++row) {
          rope_angles(table, 100 * row + 3, angles.data() + row * 2 * dims);
        }
        GuardedRows x(rows, heads * head_dim, heads * head_dim + 7, dims);
        GuardedRows weight(1, head_dim, head_dim, 4);
        const RopeArgs args{.x = x.data(),
                            .angles = angles.data(),
                            .weight = norms ? weight.data() : nullptr,
                            .x_stride = x.stride(),
                            .rows = rows,
                            .heads = heads,
                            .head_dim = head_dim,
                            .dims = dims,
                            .in_halves = in_halves,
                            .eps = kEps};
        GuardedRows expected = x;
        for (uint32_t row = 0; row < rows; ++row) {
          turn_heads(expected.at(row), args, table, angles.data() + row * 2 * dims);
        }
        GpuUnderTest gpu;
        gpu.run(rope, args);
        x.expect_same(expected);
      }
    }
  }
}

TEST(CudaRowsTest, swiglu_and_geglu_equal_their_twins) {
  for (const uint32_t n : {0u, 1u, 255u, 256u, 257u}) {
    for (const Gate kind : {Gate::kSilu, Gate::kGelu}) {
      GuardedRows gate(2, n, n + 4, n), up(2, n, n + 4, n + 1), y(2, n, n + 1, 0);
      if (n > 4) {
        gate.at(0)[0] = 100, gate.at(0)[1] = -100, gate.at(0)[2] = 0, gate.at(0)[3] = kPoison;
      }
      GuardedRows expected = y.poison();
      for (uint32_t row = 0; row < 2; ++row) {
        const auto twin = kind == Gate::kSilu ? &reference::Arithmetic::silu_mul
                                              : &reference::Arithmetic::gelu_mul;
        (kTwin.*twin)(expected.at(row), gate.at(row), up.at(row), n);
      }
      GpuUnderTest gpu;
      gpu.run(gated, {.y = y.data(),
                      .gate = gate.data(),
                      .up = up.data(),
                      .y_stride = y.stride(),
                      .stride = gate.stride(),
                      .rows = 2,
                      .n = n,
                      .kind = kind});
      y.expect_same(expected);
    }
  }
}

TEST(CudaRowsTest, a_bias_is_added_to_each_row) {
  for (const uint32_t n : {0u, 1u, 255u, 256u, 257u}) {
    GuardedRows x(3, n, n + 3, n), bias(1, n, n, 7);
    GuardedRows expected = x;
    for (uint32_t row = 0; row < 3; ++row) {
      for (uint32_t i = 0; i < n; ++i) expected.at(row)[i] += bias.data()[i];
    }
    GpuUnderTest gpu;
    gpu.run(add_bias,
            {.x = x.data(), .bias = bias.data(), .stride = x.stride(), .rows = 3, .n = n});
    x.expect_same(expected);
  }
}

TEST(CudaRowsTest, gathered_rows_are_those_asked_for_in_that_order) {
  const std::vector<uint32_t> from = {4, 0, 3, 3};
  for (const uint32_t n : {0u, 1u, 255u, 256u, 257u}) {
    for (const uint32_t rows : {0u, 1u, 4u}) {
      GuardedRows x(5, n, n + 3, n), y(rows, n, n + 5, 0);
      GuardedRows expected = y.poison();
      for (uint32_t row = 0; row < rows; ++row) {
        std::copy_n(x.at(from[row]), n, expected.at(row));
      }
      GpuUnderTest gpu;
      gpu.run(gather_rows, {.x = x.data(),
                            .from = from.data(),
                            .y = y.data(),
                            .x_stride = x.stride(),
                            .y_stride = y.stride(),
                            .rows = rows,
                            .n = n});
      y.expect_same(expected);
    }
  }
}

TEST(CudaRowsTest, embedding_equals_its_twin_for_every_type) {
  const std::vector<int32_t> tokens = {0, 34, 15, 16};
  const auto rows = static_cast<uint32_t>(tokens.size());
  for (const TensorType type : kTensorTypes) {
    for (const float scale : {1.0f, 24.5f}) {
      SCOPED_TRACE(testing::Message() << tensor_type_name(type) << ", scale " << scale);
      const uint32_t inputs = block_elements(type) == 1 ? 517 : block_elements(type) * 3;
      const auto file = random_rows(type, 35, inputs, 5);
      const auto w = PackedMatrix::pack(CpuLevel::kBaseline, type, file.data(), {35, inputs});
      GuardedRows y(rows, inputs, inputs + 3, 0);
      GuardedRows expected = y.poison();
      for (uint32_t row = 0; row < rows; ++row) {
        w.dequantize(static_cast<uint32_t>(tokens[row]), expected.at(row));
        for (uint32_t i = 0; i < inputs; ++i) expected.at(row)[i] *= scale;
      }
      const MatrixOnGpu on_gpu(w);
      GpuUnderTest gpu;
      gpu.run(embedding, {.w = on_gpu.view(),
                          .tokens = tokens.data(),
                          .y = y.data(),
                          .y_stride = y.stride(),
                          .rows = rows,
                          .scale = scale});
      y.expect_same(expected);
    }
  }
}

TEST(CudaRowsTest, soft_cap_equals_its_twin) {
  for (const uint32_t n : {0u, 1u, 255u, 256u, 257u}) {
    GuardedRows x(2, n, n + 3, n);
    if (n > 2) x.at(0)[0] = 1e6f, x.at(0)[1] = -1e6f, x.at(0)[2] = kPoison;
    GuardedRows expected = x;
    for (uint32_t row = 0; row < 2; ++row) kTwin.soft_cap(expected.at(row), 30.0f, n);
    GpuUnderTest gpu;
    gpu.run(soft_cap, {.x = x.data(), .stride = x.stride(), .rows = 2, .n = n, .cap = 30.0f});
    x.expect_same(expected);
  }
}

TEST(CudaRowsTest, argmax_is_the_first_of_the_greatest_and_no_nan) {
  for (const uint32_t n : {1u, 31u, 1023u, 1024u, 1025u, 2500u}) {
    GuardedRows x(4, n, n + 3, n);
    for (uint32_t i = 0; i < n; i += 3) x.at(0)[i] = kPoison;
    for (uint32_t i = n / 2; i < n; i += 7) x.at(1)[i] = 100;  // equals, in several warps
    for (uint32_t i = 0; i < n; ++i) x.at(2)[i] = kPoison;
    for (uint32_t i = 0; i < n; ++i) x.at(3)[i] = i % 2 == 0 ? -0.0f : 0.0f;
    std::vector<uint32_t> got(4, 99);
    GpuUnderTest gpu;
    gpu.run(argmax, {.x = x.data(), .stride = x.stride(), .rows = 4, .n = n, .to = got.data()});
    for (uint32_t row = 0; row < 4; ++row) {
      EXPECT_EQ(got[row], reference::Arithmetic::argmax(x.at(row), n))
          << "row " << row << " of " << n;
    }
  }
}

}  // namespace
}  // namespace spillway::kernels::cuda
