// What all threads of a block do together, on the emulator: sorting, and sums in order.
#include "kernels/cuda/together.cuh"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/sort.cuh"
#include "tests/kernels/cuda/emulated.h"

namespace spillway::kernels::cuda {
namespace {

SPILLWAY_KERNEL void sort_kernel(uint64_t* keys, uint64_t* spare, uint32_t count) {
  SPILLWAY_SHARED(uint64_t, shared_keys, kSortShared);
  SPILLWAY_SHARED(uint32_t, counts, kSortWarps* kDigits);
  SPILLWAY_SHARED(uint32_t, scratch, kSortWarps);
  sort_keys(keys, spare, count, {shared_keys, counts, scratch});
}

// On both sides of what shared memory takes, of a warp, and of a run of the radix sort.
TEST(CudaTogetherTest, keys_are_sorted_and_equal_ones_keep_their_order) {
  emulator::Launcher launch;
  std::mt19937_64 random(launch.seed());
  for (const uint32_t count : {0u, 1u, 2u, 3u, 31u, 32u, 33u, 511u, 512u, 513u, 2047u, 2048u, 2049u,
                               2500u, 16384u, 16385u}) {
    for (const uint64_t upper : {uint64_t{1}, uint64_t{5}, uint64_t{1} << 32}) {
      SCOPED_TRACE(testing::Message() << launch.text() << count << " keys, of " << upper);
      std::vector<uint64_t> keys(count), spare(count);
      for (uint32_t i = 0; i < count; ++i) keys[i] = random() % upper << 32 | i;
      std::vector<uint64_t> expected = keys;
      std::sort(expected.begin(), expected.end());
      launch(sort_kernel, {.grid = {}, .threads = kSortThreads}, keys.data(), spare.data(), count);
      expect_no_defects(launch);
      ASSERT_EQ(keys, expected);
    }
  }
}

SPILLWAY_KERNEL void sums_kernel(const double* values, uint32_t n, double enough, double* to,
                                 RunningSums* sums) {
  SPILLWAY_SHARED(double, tile, 64);
  const RunningSums all =
      running_sums([values](uint32_t i) { return values[i]; }, n, enough, to, tile);
  if (thread_index() == 0) *sums = all;
}

TEST(CudaTogetherTest, sums_are_added_in_order_until_there_is_enough) {
  emulator::Launcher launch;
  std::mt19937_64 random(launch.seed());
  std::uniform_real_distribution<double> uniform;
  for (const uint32_t n : {0u, 1u, 63u, 64u, 65u, 200u}) {
    std::vector<double> values(n), expected(n);
    double sum = 0;
    for (uint32_t i = 0; i < n; ++i) {
      values[i] = std::exp(-30 * uniform(random));
      expected[i] = sum += values[i];
    }
    for (const uint32_t wanted : {0u, 1u, 63u, 64u, 65u, 1000u}) {
      SCOPED_TRACE(testing::Message() << launch.text() << wanted << " of " << n);
      const double enough = wanted == 0 ? 0 : wanted <= n ? expected[wanted - 1] : HUGE_VAL;
      std::vector<double> to(n);
      RunningSums sums;
      launch(sums_kernel, {.grid = {}, .threads = 64}, values.data(), n, enough, to.data(), &sums);
      expect_no_defects(launch);
      ASSERT_GE(sums.count, std::min(n, std::max(wanted, 1u)));
      ASSERT_LT(sums.count, std::max(wanted, 1u) + 64);
      to.resize(sums.count);
      expected.resize(n);
      EXPECT_TRUE(std::equal(to.begin(), to.end(), expected.begin()));
      EXPECT_EQ(sums.last, sums.count == 0 ? 0 : to.back());
      EXPECT_EQ(first_reached(to.data(), sums.count, [&](double x) { return x >= enough; }),
                std::lower_bound(to.begin(), to.end(), enough) - to.begin());
    }
  }
}

}  // namespace
}  // namespace spillway::kernels::cuda
