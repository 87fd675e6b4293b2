#include "runtime/latency_histogram.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using std::chrono::microseconds;

TEST(LatencyHistogramTest, a_value_on_a_bound_is_in_that_bounds_bucket) {
  LatencyHistogram histogram;
  histogram.observe(microseconds(0));
  histogram.observe(microseconds(20));
  histogram.observe(microseconds(21));
  histogram.observe(microseconds(50));
  EXPECT_EQ(histogram.in_bucket(0), 2u);
  EXPECT_EQ(histogram.in_bucket(1), 2u);
  EXPECT_EQ(histogram.in_bucket(2), 0u);
}

TEST(LatencyHistogramTest, every_value_is_counted_once) {
  LatencyHistogram histogram;
  double sum_s = 0;
  for (int64_t us = 1; us < 100'000'000; us = us * 3 / 2 + 1) {
    histogram.observe(microseconds(us));
    sum_s += static_cast<double>(us) * 1e-6;
  }
  uint64_t count = 0;
  for (size_t i = 0; i <= LatencyHistogram::kBoundsS.size(); ++i) count += histogram.in_bucket(i);
  EXPECT_EQ(count, histogram.count());
  EXPECT_GT(histogram.in_bucket(LatencyHistogram::kBoundsS.size()), 0u);
  EXPECT_NEAR(histogram.sum_s(), sum_s, 1e-6 * sum_s);
}

}  // namespace
}  // namespace spillway
