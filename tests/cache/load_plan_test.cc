// When a load by bands is worth it, and when a step under it may begin.
#include "cache/load_plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace spillway::cache {
namespace {

// A prefix of which nothing had better be computed.
BandsQuestion all_loaded(double load_s, double compute_s) {
  return {.bands = 8,
          .load_seconds = load_s,
          .compute_seconds = compute_s,
          .otherwise_seconds = load_s};
}

TEST(LoadPlan, bands_pay_where_load_and_compute_can_hide_each_other) {
  EXPECT_TRUE(bands_pay(all_loaded(0.1, 0.3)));
  EXPECT_TRUE(bands_pay(all_loaded(0.3, 0.1)));
  EXPECT_FALSE(bands_pay(all_loaded(0.001, 0.3)));
  EXPECT_FALSE(bands_pay(all_loaded(10, 0.01)));
  EXPECT_FALSE(bands_pay(all_loaded(0.1, 0)));
  BandsQuestion whole = all_loaded(0.3, 0.3);
  whole.bands = 1;
  EXPECT_FALSE(bands_pay(whole));
  EXPECT_FALSE(bands_still_pay(whole));
}

// A slow disk: computing most of the prefix and then the suffix ends before the prefix is there.
TEST(LoadPlan, bands_do_not_pay_where_load_and_recompute_meet_early) {
  BandsQuestion question = all_loaded(2, 0.2);
  question.otherwise_seconds = 1;
  EXPECT_FALSE(bands_pay(question));
  EXPECT_FALSE(bands_still_pay(question));
  question.otherwise_seconds = 1.9;  // 2.1 in all, against 2.025
  EXPECT_FALSE(bands_pay(question));
  EXPECT_TRUE(bands_still_pay(question));
}

// The step as it runs: band b of the load arrives in even steps, and is computed in even steps.
// Returns how long the step waits for bands, with the first there when it begins.
double waited(uint32_t bands, uint32_t there, double load_s, double compute_s) {
  double at = 0, waits = 0;
  for (uint32_t band = 0; band < bands; ++band) {
    const double arrives =
        band < there ? 0 : load_s * (band - there + 1) / static_cast<double>(bands - there);
    waits += std::max(arrives - at, 0.0);
    at = std::max(at, arrives) + compute_s / bands;
  }
  return waits;
}

TEST(LoadPlan, a_step_that_may_begin_hardly_waits_for_bands_that_come_as_planned) {
  EXPECT_TRUE(rc::check([] {
    const auto bands = *rc::gen::inRange<uint32_t>(2, 9);
    const auto there = *rc::gen::inRange<uint32_t>(1, bands);
    const double load_s = *rc::gen::inRange(1, 1000) * 1e-3;
    const double compute_s = *rc::gen::inRange(1, 1000) * 1e-3;
    const BandsQuestion question{
        .bands = bands, .load_seconds = load_s, .compute_seconds = compute_s};
    if (may_begin_under_load(question)) {
      RC_ASSERT(waited(bands, there, load_s, compute_s) <= compute_s / bands + 1e-9);
    }
  }));
}

// Loading and computing together take at most 1.15 of the longer one (issue 4), at any speed.
TEST(LoadPlan, eight_bands_hide_the_shorter_of_load_and_compute) {
  constexpr double kCompute = 0.2;
  for (const double load_s : {0.01, 0.03, 0.1, 0.15, 0.2, 0.3, 1.0, 3.0}) {
    double began = load_s / 8;
    while (!may_begin_under_load(
        {.bands = 8, .load_seconds = std::max(load_s - began, 0.0), .compute_seconds = kCompute})) {
      began += load_s / 1000;
    }
    const double ended = std::max(began + kCompute, load_s + kCompute / 8);
    EXPECT_LE(ended, 1.15 * std::max(load_s, kCompute)) << load_s;
  }
}

}  // namespace
}  // namespace spillway::cache
