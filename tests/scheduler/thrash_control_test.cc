#include "scheduler/thrash_control.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace spillway::scheduler {
namespace {

constexpr double kTierBytesPerS = 100e6;

// Streams that generate a token each step of 10 ms; 4 of them are on the device at a time.
class Streams {
 public:
  explicit Streams(uint32_t streams) : streams_(streams) {}

  // One window in which `bytes` come back.
  void window(uint64_t bytes) {
    control.came_back(bytes);
    for (uint32_t step = 0; step < ThrashControl::kWindowTokens; ++step) {
      now_ += std::chrono::milliseconds(10);
      control.stepped(
          now_, {.tokens = 4, .bytes_per_s = kTierBytesPerS, .running = 4, .streams = streams_});
    }
  }
  // Bytes that the tier moves in the time of a window.
  static uint64_t all() {
    return static_cast<uint64_t>(kTierBytesPerS * 0.01 * ThrashControl::kWindowTokens);
  }

  ThrashControl control;

 private:
  const uint32_t streams_;
  Clock::TimePoint now_{std::chrono::seconds(1)};
};

TEST(ThrashControlTest, cheap_turns_are_not_limited) {
  Streams streams(12);
  for (int i = 0; i < 20; ++i) streams.window(Streams::all() / 5);
  EXPECT_EQ(streams.control.streams_max(), ThrashControl::kNoLimit);
}

TEST(ThrashControlTest, the_set_shrinks_as_long_as_turns_cost_too_much) {
  Streams streams(32);
  uint32_t before = 32;
  for (int i = 0; i < 3; ++i) {
    streams.window(Streams::all());
    EXPECT_LE(streams.control.streams_max(), before - before / 4);
    before = streams.control.streams_max();
  }
  for (int i = 0; i < 20; ++i) streams.window(Streams::all());
  EXPECT_EQ(streams.control.streams_max(), 4u);  // never less than the device holds
}

TEST(ThrashControlTest, it_grows_again_by_one_a_window_and_ends_without_a_limit) {
  Streams streams(7);
  while (streams.control.streams_max() > 4) streams.window(Streams::all());
  std::vector<uint32_t> limits;
  for (int i = 0; i < 4; ++i) {
    streams.window(0);
    limits.push_back(streams.control.streams_max());
  }
  EXPECT_EQ(limits, (std::vector<uint32_t>{5, 6, 7, ThrashControl::kNoLimit}));
}

TEST(ThrashControlTest, between_the_bounds_it_stays_as_it_is) {
  Streams streams(12);
  while (streams.control.streams_max() > 8) streams.window(Streams::all());
  const uint32_t limit = streams.control.streams_max();
  for (int i = 0; i < 5; ++i) streams.window(Streams::all() * 2 / 5);
  EXPECT_EQ(streams.control.streams_max(), limit);
}

TEST(ThrashControlTest, tells_the_bytes_of_each_token) {
  Streams streams(12);
  streams.window(1000 * 4 * ThrashControl::kWindowTokens);
  streams.window(3000 * 4 * ThrashControl::kWindowTokens);
  EXPECT_DOUBLE_EQ(streams.control.bytes_per_token(), 3000);
  EXPECT_EQ(streams.control.total_bytes(), 4000u * 4 * ThrashControl::kWindowTokens);
}

// One stream's swap is much in the time of a few steps, and nothing in that of its slice.
TEST(ThrashControlTest, a_window_is_as_long_as_a_slice) {
  ThrashControl control;
  Clock::TimePoint now{std::chrono::seconds(1)};
  for (uint32_t step = 0; step < 4000; ++step) {
    if (step % 1000 == 0) control.came_back(static_cast<uint64_t>(kTierBytesPerS));
    now += std::chrono::milliseconds(10);
    control.stepped(now, {.tokens = 4,
                          .bytes_per_s = kTierBytesPerS,
                          .slice_tokens = 1000,
                          .running = 4,
                          .streams = 8});
  }
  EXPECT_EQ(control.shrinks(), 0u);
  EXPECT_NEAR(control.bytes_per_token(), kTierBytesPerS / 4000, kTierBytesPerS / 40000);
}

}  // namespace
}  // namespace spillway::scheduler
