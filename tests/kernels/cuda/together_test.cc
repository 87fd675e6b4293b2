// What all threads of a block do together: sorting, and sums in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/kernels/cuda/gpu_under_test.h"
#include "tests/kernels/cuda/parts_under_test.h"

namespace spillway::kernels::cuda {
namespace {

// On both sides of what shared memory takes, of a warp, and of a run of the radix sort.
TEST(CudaTogetherTest, keys_are_sorted_and_equal_ones_keep_their_order) {
  GpuUnderTest gpu;
  std::mt19937_64 random(gpu.seed());
  for (const uint32_t count : {0u, 1u, 2u, 3u, 31u, 32u, 33u, 511u, 512u, 513u, 2047u, 2048u, 2049u,
                               2500u, 16384u, 16385u}) {
    for (const uint64_t upper : {uint64_t{1}, uint64_t{5}, uint64_t{1} << 32}) {
      SCOPED_TRACE(testing::Message() << gpu.text() << count << " keys, of " << upper);
      std::vector<uint64_t> keys(count), spare(count);
      for (uint32_t i = 0; i < count; ++i) keys[i] = random() % upper << 32 | i;
      std::vector<uint64_t> expected = keys;
      std::sort(expected.begin(), expected.end());
      gpu.run(sort, {.keys = keys.data(), .spare = spare.data(), .count = count});
      ASSERT_EQ(keys, expected);
    }
  }
}

TEST(CudaTogetherTest, sums_are_added_in_order_until_there_is_enough) {
  GpuUnderTest gpu;
  std::mt19937_64 random(gpu.seed());
  std::uniform_real_distribution<double> uniform;
  for (const uint32_t n : {0u, 1u, 63u, 64u, 65u, 200u}) {
    std::vector<double> values(n), expected(n);
    double sum = 0;
    for (uint32_t i = 0; i < n; ++i) {
      values[i] = std::exp(-30 * uniform(random));
      expected[i] = sum += values[i];
    }
    for (const uint32_t wanted : {0u, 1u, 63u, 64u, 65u, 1000u}) {
      SCOPED_TRACE(testing::Message() << gpu.text() << wanted << " of " << n);
      const double enough = wanted == 0 ? 0 : wanted <= n ? expected[wanted - 1] : HUGE_VAL;
      std::vector<double> to(n), last(1);
      std::vector<uint32_t> taken(1), first(1);
      gpu.run(sum_up, {.values = values.data(),
                       .n = n,
                       .enough = enough,
                       .to = to.data(),
                       .last = last.data(),
                       .count = taken.data(),
                       .first = first.data()});
      const uint32_t count = taken[0];
      ASSERT_GE(count, std::min(n, std::max(wanted, 1u)));
      ASSERT_LT(count, std::max(wanted, 1u) + 64);
      to.resize(count);
      expected.resize(n);
      EXPECT_TRUE(std::equal(to.begin(), to.end(), expected.begin()));
      EXPECT_EQ(last[0], count == 0 ? 0 : to.back());
      EXPECT_EQ(first[0], std::lower_bound(to.begin(), to.end(), enough) - to.begin());
    }
  }
}

}  // namespace
}  // namespace spillway::kernels::cuda
