// What ranks compute of each other's rows, against a loop.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/rank_operators.h"
#include "tests/kernels/cuda/gpu_under_test.h"
#include "tests/kernels/cuda/guarded_rows.h"

namespace spillway::kernels::cuda {
namespace {

TEST(CudaRanksTest, parts_are_summed_in_their_order_and_one_is_copied) {
  for (const uint32_t count : {1u, 2u, 3u, kRanksMax}) {
    for (const uint32_t n : {0u, 1u, 255u, 256u, 257u}) {
      SCOPED_TRACE(testing::Message() << count << " parts of " << n);
      std::vector<GuardedRows> parts;
      for (uint32_t p = 0; p < count; ++p) parts.emplace_back(2, n, n + 3, 11 * p + n);
      GuardedRows y(2, n, n + 5, 0);
      GuardedRows expected = y.poison();
      SumPartsArgs args{.y = y.data(),
                        .stride = n + 3,
                        .y_stride = y.stride(),
                        .count = count,
                        .rows = 2,
                        .n = n};
      for (uint32_t p = 0; p < count; ++p) args.parts[p] = parts[p].data();
      for (uint32_t row = 0; row < 2; ++row) {
        for (uint32_t i = 0; i < n; ++i) {
          float sum = parts[0].at(row)[i];
          for (uint32_t p = 1; p < count; ++p) sum += parts[p].at(row)[i];
          expected.at(row)[i] = sum;
        }
      }
      GpuUnderTest gpu;
      gpu.run(sum_parts, args);
      y.expect_same(expected);
    }
  }
}

TEST(CudaRanksTest, a_part_may_become_the_sum) {
  constexpr uint32_t kN = 300;
  GuardedRows own(1, kN, kN, 1), other(1, kN, kN, 2);
  GuardedRows expected = own;
  for (uint32_t i = 0; i < kN; ++i) expected.at(0)[i] = other.at(0)[i] + own.at(0)[i];
  SumPartsArgs args{.y = own.data(), .count = 2, .rows = 1, .n = kN};
  args.parts[0] = other.data();
  args.parts[1] = own.data();
  GpuUnderTest gpu;
  gpu.run(sum_parts, args);
  own.expect_same(expected);
}

}  // namespace
}  // namespace spillway::kernels::cuda
