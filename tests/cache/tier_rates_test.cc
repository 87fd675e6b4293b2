// The rates by which load and recompute are weighed against each other, and the point where both
// meet. Times are made up: nothing here waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "cache/load_plan.h"
#include "cache/tier_rates.h"

namespace spillway::cache {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;

constexpr uint64_t kPage = 368640;
constexpr double kGuess = 1e9;

Clock::TimePoint at(double seconds) {
  return Clock::TimePoint{} + duration_cast<Clock::Duration>(duration<double>(seconds));
}

// A tier that ends pages `bytes_per_s` fast, `depth` in flight, in bunches of `bunch`.
class Pipe {
 public:
  Pipe(double bytes_per_s, uint32_t depth, uint32_t bunch)
      : page_s_(kPage / bytes_per_s), depth_(depth), bunch_(bunch) {}

  void set_speed(double bytes_per_s) { page_s_ = kPage / bytes_per_s; }

  // `pages` one after the other; calls look() at the end of each bunch.
  template <typename Look>
  void load(uint32_t pages, Look look) {
    uint32_t begun = 0, ended = 0;
    while (ended < pages) {
      while (begun < pages && begun - ended < depth_) rate.began(at(now), kPage), ++begun;
      const uint32_t together = std::min({bunch_, begun - ended});
      now += page_s_ * together;
      for (uint32_t i = 0; i < together; ++i) rate.ended(at(now), kPage, true), ++ended;
      look();
    }
  }

  TransferRate rate{kGuess};
  double now = 1;

 private:
  double page_s_;
  const uint32_t depth_, bunch_;
};

RC_GTEST_PROP(TransferRate, tells_the_speed_of_a_pipe_however_its_pages_are_bunched, ()) {
  const double speed = 1e6 * *rc::gen::inRange(50, 7000);
  const uint32_t depth = *rc::gen::inRange<uint32_t>(1, 23);
  // What is reaped together: no more than comes in 10 ms.
  const auto most = static_cast<uint32_t>(std::max(1.0, 0.01 * speed / kPage));
  const uint32_t bunch = *rc::gen::inRange<uint32_t>(1, std::min(depth, most) + 1);
  Pipe pipe(speed, depth, bunch);
  // Every estimate on the way lies between the guess and the truth, or near the truth. It may be
  // as low as half: a bunch comes after a silence twice as long as it should last.
  const double low = std::min(kGuess, speed) * 0.45, high = std::max(kGuess, speed) * 1.5;
  pipe.load(400, [&] {
    const double told = pipe.rate.bytes_per_s(at(pipe.now));
    RC_ASSERT(told >= low);
    RC_ASSERT(told <= high);
  });
  RC_ASSERT(pipe.rate.bytes_per_s(at(pipe.now)) > speed * 0.75);
  RC_ASSERT(pipe.rate.bytes_per_s(at(pipe.now)) < speed * 1.35);
}

// As the kernel's throttle does: so many bytes every 100 ms, each time as fast as the disk is.
struct Slices {
  double limit, raw;  // bytes per second
};

class ThrottledRate : public testing::TestWithParam<Slices> {};

TEST_P(ThrottledRate, is_told_and_not_the_speed_of_its_bursts) {
  const auto [limit, raw] = GetParam();
  constexpr double kSlice = 0.1;
  TransferRate rate(kGuess);
  double now = 1, slice_ends = now + kSlice, budget = limit * kSlice;
  for (int load = 0; load < 3; ++load) {
    uint32_t begun = 0;
    for (uint32_t ended = 0; ended < 375; ++ended) {
      while (begun < 375 && begun - ended < 22) rate.began(at(now), kPage), ++begun;
      for (double left = kPage; left > 0;) {  // of this page
        const double part = std::min(left, budget);
        now += part / raw;
        left -= part;
        budget -= part;
        if (budget > 0 && now < slice_ends) continue;
        now = std::max(now, slice_ends);
        slice_ends = now + kSlice;
        budget = limit * kSlice;
      }
      rate.ended(at(now), kPage, true);
      if (now < 1 + 5 * kSlice) continue;  // not yet known
      EXPECT_GT(rate.bytes_per_s(at(now)), limit / 2) << "load " << load << " page " << ended;
      EXPECT_LT(rate.bytes_per_s(at(now)), limit * 2) << "load " << load << " page " << ended;
    }
    now += 0.01;
    slice_ends = now + kSlice;
    budget = limit * kSlice;
  }
}

INSTANTIATE_TEST_SUITE_P(at, ThrottledRate,
                         testing::Values(Slices{30e6, 0.8e9}, Slices{30e6, 1.5e9},
                                         Slices{80e6, 0.8e9}, Slices{80e6, 1.5e9},
                                         Slices{400e6, 1.5e9}));

TEST(TransferRate, one_page_behind_a_full_queue_is_no_slow_disk) {
  TransferRate rate(kGuess);
  for (int i = 0; i < 22; ++i) rate.began(at(1), kPage);
  // All come after 8 ms, one right behind the other: 1 GB/s.
  for (int i = 0; i < 22; ++i) {
    rate.ended(at(1.0081 + 1e-6 * i), kPage, true);
    EXPECT_GT(rate.bytes_per_s(at(1.0081 + 1e-6 * i)), 0.9e9);
    EXPECT_LT(rate.bytes_per_s(at(1.0081 + 1e-6 * i)), 1.1e9);
  }
  rate.began(at(1.01), kPage);  // now what ended makes a sample
  EXPECT_TRUE(rate.measured());
  EXPECT_NEAR(rate.bytes_per_s(at(1.01)), 1e9, 0.1e9);
}

TEST(TransferRate, a_disk_that_says_nothing_looks_slow_before_it_ends_anything) {
  TransferRate rate(kGuess);
  for (int i = 0; i < 22; ++i) rate.began(at(1), kPage);
  EXPECT_EQ(rate.bytes_per_s(at(1.005)), kGuess);
  EXPECT_LT(rate.bytes_per_s(at(1.08)), 0.11e9);
  EXPECT_LT(rate.bytes_per_s(at(3)), 0.005e9);
}

TEST(TransferRate, a_slow_disk_is_found_out_by_its_first_pages) {
  Pipe pipe(50e6, 22, 1);
  pipe.load(8, [] {});  // 59 ms
  EXPECT_LT(pipe.rate.bytes_per_s(at(pipe.now)), 60e6);
}

TEST(TransferRate, a_tier_that_got_ten_times_faster_is_found_out_by_three_samples) {
  Pipe pipe(100e6, 22, 1);
  pipe.load(200, [] {});
  pipe.set_speed(1e9);
  pipe.load(40, [] {});  // the first sample is as long as what is in flight
  EXPECT_GT(pipe.rate.bytes_per_s(at(pipe.now)), 0.7e9);
}

TEST(TransferRate, a_tier_is_not_too_fast_to_be_measured) {
  Pipe pipe(50e9, 22, 1);
  pipe.load(92, [] {});  // 0.65 ms
  EXPECT_TRUE(pipe.rate.measured());
  EXPECT_NEAR(pipe.rate.bytes_per_s(at(pipe.now)), 50e9, 5e9);
}

TEST(TransferRate, a_low_estimate_drifts_back_to_the_guess_while_nothing_is_asked) {
  Pipe pipe(50e6, 4, 1);
  pipe.load(100, [] {});
  EXPECT_NEAR(pipe.rate.bytes_per_s(at(pipe.now)), 50e6, 5e6);
  EXPECT_GT(pipe.rate.bytes_per_s(at(pipe.now + 15)), 0.4e9);
  EXPECT_EQ(pipe.rate.bytes_per_s(at(pipe.now + 31)), kGuess);
}

TEST(TransferRate, failures_alone_tell_nothing_of_a_speed_never_seen) {
  TransferRate rate(kGuess);
  for (int i = 0; i < 5; ++i) {
    rate.began(at(1 + i), kPage);
    rate.ended(at(1.2 + i), kPage, false);
  }
  EXPECT_EQ(rate.bytes_per_s(at(7)), kGuess);
  EXPECT_FALSE(rate.measured());
}

TEST(ComputeRate, later_tokens_are_dearer_and_unmeasured_places_take_a_neighbours) {
  ComputeRate rate;
  EXPECT_EQ(rate.seconds_per_token(0), 0);
  rate.measured(0, 512, 0.256);
  EXPECT_NEAR(rate.seconds_per_token(100), 0.0005, 1e-6);
  EXPECT_NEAR(rate.seconds_per_token(8000), 0.0005, 1e-6);
  rate.measured(8000, 512, 1.024);
  EXPECT_NEAR(rate.seconds_per_token(8000), 0.002, 1e-6);
  EXPECT_NEAR(rate.seconds_per_token(100), 0.0005, 1e-6);
}

// The later of the two ends when [begin, m) is computed and [m, end) loaded.
double ends_at(const LoadQuestion& question, const ComputeRate& compute, uint32_t m) {
  double computed = 0;
  if (m > question.begin) computed = compute.step_seconds() * question.compute_price;
  for (uint32_t page = question.begin - question.gap; page < m; ++page) {
    computed += compute.seconds_per_token(page * question.page_tokens) * question.page_tokens *
                question.compute_price;
  }
  const double loaded =
      m == question.end ? 0 : question.queued_seconds + (question.end - m) * question.load_seconds;
  return std::max(computed, loaded);
}

RC_GTEST_PROP(LoadPlan, no_other_meeting_point_ends_sooner, ()) {
  ComputeRate compute;
  for (uint32_t position = 0; position < 16384; position += 1024) {
    compute.measured(position, 64, 64e-6 * *rc::gen::inRange(1, 5000));
  }
  LoadQuestion question;
  question.begin = *rc::gen::inRange(0, 100);
  question.gap = *rc::gen::inRange<uint32_t>(0, question.begin + 1);
  question.end = question.begin + *rc::gen::inRange(0, 400);
  question.load_seconds = 1e-6 * *rc::gen::inRange(1, 20000);
  question.queued_seconds = 1e-3 * *rc::gen::inRange(0, 500);
  question.compute_price = *rc::gen::inRange(1, 9);
  const uint32_t chosen = meeting_point(question, compute);
  RC_ASSERT(chosen >= question.begin);
  RC_ASSERT(chosen <= question.end);
  double best = ends_at(question, compute, question.begin);
  for (uint32_t m = question.begin; m <= question.end; ++m) {
    best = std::min(best, ends_at(question, compute, m));
  }
  RC_ASSERT(ends_at(question, compute, chosen) <= best * (1 + 1e-9));
}

TEST(LoadPlan, all_is_loaded_while_nobody_knows_what_computing_takes) {
  LoadQuestion question;
  question.end = 100;
  question.load_seconds = 10;
  EXPECT_EQ(meeting_point(question, ComputeRate{}), 0u);
}

TEST(LoadPlan, a_fast_disk_leaves_nothing_to_compute_and_a_dead_one_all) {
  ComputeRate compute;
  compute.measured(0, 512, 0.5);
  LoadQuestion question;
  question.end = 100;
  question.load_seconds = 1e-4;
  EXPECT_EQ(meeting_point(question, compute), 0u);
  question.load_seconds = 1e4;
  EXPECT_EQ(meeting_point(question, compute), 100u);
}

TEST(LoadPlan, what_is_computed_first_in_any_case_takes_its_time) {
  ComputeRate compute;
  compute.measured(0, 512, 0.512);
  LoadQuestion question;
  question.end = 100;
  question.load_seconds = 0.016;  // as long as computing a page
  const uint32_t meeting = meeting_point(question, compute);
  // Planned anew, with all before that point given up: it is the same.
  question.begin = question.gap = meeting;
  EXPECT_EQ(meeting_point(question, compute), meeting);
}

TEST(LoadPlan, the_more_wait_for_the_engine_the_more_is_loaded) {
  ComputeRate compute;
  compute.measured(0, 512, 0.512);
  compute.measured(0, 1, 0.001);  // so short a step can be
  LoadQuestion question;
  question.end = 100;
  question.load_seconds = 0.016;  // as long as computing a page
  EXPECT_NEAR(meeting_point(question, compute), 50, 3);
  question.compute_price = 4;
  EXPECT_NEAR(meeting_point(question, compute), 20, 3);
}

}  // namespace
}  // namespace spillway::cache
