// The emulator itself: what a right kernel computes, and that each kind of wrong one is reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cuda/tensor_core.cuh"
#include "tests/emulator/launch.h"

namespace spillway::kernels::cuda {
namespace {

using emulator::DefectKind;
using emulator::Launcher;
using testing::HasSubstr;

constexpr LaunchShape kOneBlock{.grid = {1, 1, 1}, .threads = 64, .shared_bytes = 1024};

// Runs `kernel` in one block under several orders of threads.
template <class... A>
void expect_good(void (*kernel)(A...), const LaunchShape& shape, A... arguments) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Launcher launch(seed);
    launch(kernel, shape, arguments...);
    EXPECT_TRUE(launch.defects().empty()) << launch.text();
  }
}

// Whatever the order of threads, a defect of `kind` and no other is reported.
template <class... A>
void expect_defect(DefectKind kind, const char* text, void (*kernel)(A...),
                   const LaunchShape& shape, A... arguments) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Launcher launch(seed);
    launch(kernel, shape, arguments...);
    ASSERT_FALSE(launch.defects().empty()) << launch.text();
    for (const auto& defect : launch.defects().kept()) EXPECT_EQ(defect.kind, kind);
    EXPECT_THAT(launch.text(), HasSubstr(text));
    EXPECT_THAT(launch.text(), HasSubstr("emulator_test.cc:"));
  }
}

void reverse_kernel(float* out, const float* in) {
  SPILLWAY_SHARED(float, row, 64);
  const uint32_t at = block_index().x * 64 + thread_index();
  row[thread_index()] = in[at];
  sync_threads();
  out[at] = row[63 - thread_index()];
}

TEST(EmulatorTest, a_barrier_hands_shared_memory_over_in_every_block) {
  std::vector<float> in(3 * 64), out(3 * 64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  expect_good<float*, const float*>(reverse_kernel, {.grid = {3, 1, 1}, .threads = 64}, out.data(),
                                    in.data());
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], in[i / 64 * 64 + 63 - i % 64]);
}

void no_barrier_kernel(float* out) {
  SPILLWAY_SHARED(float, row, 64);
  row[thread_index()] = 1;
  out[thread_index()] = row[thread_index() ^ 1u];
}

TEST(EmulatorTest, shared_memory_read_with_no_barrier_after_the_write_is_reported_in_some_order) {
  // Who reads first meets what nobody has written; who reads second, a race.
  std::vector<float> out(64);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Launcher launch(seed);
    launch(no_barrier_kernel, kOneBlock, out.data());
    EXPECT_TRUE(launch.defects().has(DefectKind::kRace)) << launch.text();
  }
}

void write_after_read_kernel(float* out) {
  SPILLWAY_SHARED(float, row, 64);
  row[thread_index()] = 1;
  sync_threads();
  out[thread_index()] = row[(thread_index() + 32) % 64];
  row[thread_index()] = 2;
}

void two_writers_kernel() {
  SPILLWAY_SHARED(float, one, 1);
  one[0] = static_cast<float>(thread_index());
}

TEST(EmulatorTest, writes_that_race_with_reads_or_writes_are_reported) {
  std::vector<float> out(64);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Launcher launch(seed);
    launch(write_after_read_kernel, kOneBlock, out.data());
    EXPECT_TRUE(launch.defects().has(DefectKind::kRace)) << launch.text();
  }
  expect_defect(DefectKind::kRace, "writes what thread", two_writers_kernel, kOneBlock);
}

// A warp's barrier is enough within the warp, and not between warps.
void warp_barrier_kernel(uint32_t distance) {
  SPILLWAY_SHARED(float, row, 64);
  row[thread_index()] = 1;
  sync_warp();
  [[maybe_unused]] const float value = row[thread_index() ^ distance];
}

TEST(EmulatorTest, a_warp_barrier_orders_its_own_warp_alone) {
  expect_good<uint32_t>(warp_barrier_kernel, kOneBlock, 5);
  Launcher launch(3);
  launch(warp_barrier_kernel, kOneBlock, 32u);
  EXPECT_FALSE(launch.defects().empty());
}

// Readers of one warp before its barrier, a writer of it after: fine; the other warp's reader is
// not.
void read_then_write_kernel(bool with_other_warp) {
  SPILLWAY_SHARED(float, one, 1);
  if (thread_index() == 0) one[0] = 1;
  sync_threads();
  if (thread_index() < 32 || with_other_warp) {
    [[maybe_unused]] const float value = one[0];
  }
  sync_warp();
  if (thread_index() == 7) one[0] = 2;
}

TEST(EmulatorTest, a_write_after_reads_is_ordered_by_the_warp_barrier_unless_another_warp_read) {
  expect_good<bool>(read_then_write_kernel, kOneBlock, false);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Launcher launch(seed);
    launch(read_then_write_kernel, kOneBlock, true);
    EXPECT_TRUE(launch.defects().has(DefectKind::kRace)) << launch.text();
  }
}

void uninitialised_kernel(float* out) {
  const Shared<float> row = dynamic_shared<float>(0, 256);
  out[thread_index()] = row[thread_index()];
}

TEST(EmulatorTest, fresh_shared_memory_is_nan_and_reading_it_is_reported) {
  std::vector<float> out(64, 1.0f);
  expect_defect<float*>(DefectKind::kUninitialised, "nothing has written", uninitialised_kernel,
                        kOneBlock, out.data());
  EXPECT_TRUE(std::isnan(out[0]));
}

void past_the_end_kernel() {
  const Shared<float> row = dynamic_shared<float>(0, 63);
  row[thread_index()] = 1;
}

void too_much_kernel() { [[maybe_unused]] const auto row = dynamic_shared<float>(16, 256); }

void too_much_static_kernel() {
  SPILLWAY_SHARED(float, first, 10000);
  SPILLWAY_SHARED(float, second, 3000);
  first[thread_index()] = 1;
  second[thread_index()] = 1;
}

void misaligned_kernel() {
  SPILLWAY_SHARED(float, row, 68);
  row.store(4 * (thread_index() / 4) + 1, Float4{1, 2, 3, 4});
}

TEST(EmulatorTest, accesses_out_of_bounds_or_alignment_are_reported) {
  expect_defect(DefectKind::kOutOfBounds, "element 63 of 63", past_the_end_kernel, kOneBlock);
  expect_defect(DefectKind::kOutOfBounds, "dynamic", too_much_kernel, kOneBlock);
  expect_defect(DefectKind::kMisaligned, "16 bytes at offset", misaligned_kernel, kOneBlock);
  Launcher launch(1);
  launch(too_much_static_kernel, kOneBlock);
  EXPECT_TRUE(launch.defects().has(DefectKind::kOutOfBounds)) << launch.text();
}

void missed_barrier_kernel() {
  if (thread_index() != 5) sync_threads();
}

void two_barriers_kernel() {
  if (thread_index() < 32) {
    sync_threads();
  } else {
    sync_threads();
  }
}

TEST(EmulatorTest, a_barrier_that_not_all_threads_reach_is_reported) {
  expect_defect(DefectKind::kBarrier, "thread 5 has ended", missed_barrier_kernel, kOneBlock);
  expect_defect(DefectKind::kBarrier, "waits at the barrier", two_barriers_kernel, kOneBlock);
}

void missed_shuffle_kernel() {
  if (thread_index() != 40) shuffle_xor(1.0f, 1);
}

void barrier_or_shuffle_kernel() {
  if (thread_index() < 40) {
    sync_threads();
  } else {
    shuffle_xor(1.0f, 1);
  }
}

void silent_lane_kernel() { shuffle(1.0f, 33); }

TEST(EmulatorTest, a_warp_operation_that_not_all_lanes_reach_is_reported) {
  expect_defect(DefectKind::kWarp, "thread 40 has ended", missed_shuffle_kernel, kOneBlock);
  expect_defect(DefectKind::kWarp, "waits at the barrier", barrier_or_shuffle_kernel, kOneBlock);
  expect_defect(DefectKind::kWarp, "has given none", silent_lane_kernel, kOneBlock);
}

void warp_kernel(uint32_t* out) {
  const uint32_t lane = thread_index() % 32;
  uint32_t sum = thread_index();
  for (uint32_t bits = 16; bits > 0; bits /= 2) sum += shuffle_xor(sum, bits);
  const uint32_t third = shuffle(thread_index(), 3);
  const uint32_t odd = ballot(lane % 2 == 1);
  const bool good = any(lane == 9) && !any(lane == 32) && all(lane < 32) && !all(lane < 31);
  uint32_t* to = out + 4 * thread_index();
  to[0] = sum;
  to[1] = third;
  to[2] = odd;
  to[3] = good;
  // Half a warp at a time, one of them twice.
  const uint32_t half = lane < 16 ? 0xffffu : 0xffff0000u;
  if (lane < 16) to[1] += shuffle(0u, 2, half);
  to[2] += shuffle_xor(lane, 1, half) - (lane ^ 1u);
}

TEST(EmulatorTest, shuffles_and_votes_exchange_within_the_warp) {
  std::vector<uint32_t> out(4 * 64);
  expect_good<uint32_t*>(warp_kernel, kOneBlock, out.data());
  for (uint32_t t = 0; t < 64; ++t) {
    EXPECT_EQ(out[4 * t], t < 32 ? 496u : 1520u) << t;
    EXPECT_EQ(out[4 * t + 1], t / 32 * 32 + 3) << t;
    EXPECT_EQ(out[4 * t + 2], 0xaaaaaaaau) << t;
    EXPECT_EQ(out[4 * t + 3], 1u) << t;
  }
}

void count_kernel(uint32_t* total, bool plain) {
  SPILLWAY_SHARED(uint32_t, count, 1);
  if (thread_index() == 0) count[0] = 0;
  sync_threads();
  atomic_add(count, 0, 2u);
  if (plain && thread_index() == 9) count[0] = 1;
  sync_threads();
  if (thread_index() == 0) atomic_add(total, uint32_t{count[0]});
}

TEST(EmulatorTest, atomics_do_not_race_with_each_other_but_with_plain_accesses) {
  uint32_t total = 0;
  expect_good<uint32_t*, bool>(count_kernel, {.grid = {2, 2, 1}, .threads = 64}, &total, false);
  EXPECT_EQ(total, 5u * 4 * 128);
  expect_defect<uint32_t*, bool>(DefectKind::kRace, "has written", count_kernel, kOneBlock, &total,
                                 true);
}

void order_kernel(std::vector<uint32_t>* order) { order->push_back(thread_index()); }

TEST(EmulatorTest, a_seed_fixes_the_order_of_threads_and_another_changes_it) {
  std::vector<uint32_t> orders[3];
  const uint64_t seeds[] = {7, 7, 8};
  for (int i = 0; i < 3; ++i) {
    Launcher launch(seeds[i]);
    launch(order_kernel, kOneBlock, &orders[i]);
  }
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_NE(orders[0], orders[2]);
}

void one_barrier_kernel() { sync_threads(); }

TEST(EmulatorTest, launchers_of_a_process_have_one_seed) {
  EXPECT_EQ(Launcher().seed(), Launcher().seed());
}

TEST(EmulatorTest, shapes_that_no_gpu_takes_are_reported_and_empty_grids_run_nothing) {
  for (const uint32_t threads : {0u, 33u, 1056u}) {
    Launcher launch(1);
    launch(missed_barrier_kernel, {.grid = {1, 1, 1}, .threads = threads});
    EXPECT_TRUE(launch.defects().has(DefectKind::kBadLaunch));
  }
  for (const size_t kib : {51, 52}) {  // beside 48 of static arrays
    Launcher launch(1);
    launch(one_barrier_kernel, {.threads = 64, .shared_bytes = kib * 1024});
    EXPECT_EQ(launch.defects().has(DefectKind::kBadLaunch), kib > 51) << launch.text();
  }
  Launcher launch(1);
  launch(missed_barrier_kernel, {.grid = {1, 0, 1}, .threads = 64});
  EXPECT_TRUE(launch.defects().empty());
}

void fetch_kernel(const float* in, float* out, bool waits) {
  SPILLWAY_SHARED(float, row, 256);
  copy_async_16(row, 4 * thread_index(), in + 4 * thread_index(), thread_index() != 1);
  commit_copies();
  if (waits) wait_copies<0>();
  sync_threads();
  const uint32_t other = 63 - thread_index();
  const Float4 four = row.load<Float4>(4 * other);
  out[other] = four.x + four.y + four.z + four.w;
}

TEST(EmulatorTest, asynchronous_copies_land_when_waited_for) {
  alignas(16) float in[256];
  for (int i = 0; i < 256; ++i) in[i] = static_cast<float>(i);
  std::vector<float> out(64);
  expect_good<const float*, float*, bool>(fetch_kernel, kOneBlock, in, out.data(), true);
  for (size_t t = 0; t < 64; ++t) EXPECT_EQ(out[t], t == 1 ? 0.0f : static_cast<float>(16 * t + 6));
  expect_defect<const float*, float*, bool>(DefectKind::kPendingCopy, "has yet to fill",
                                            fetch_kernel, kOneBlock, in, out.data(), false);
}

void fetch_words_kernel(const float* in, float* out, bool waits) {
  SPILLWAY_SHARED(float, row, 64);
  copy_async_4(row, thread_index(), in + thread_index(), thread_index() != 1);
  commit_copies();
  if (waits) wait_copies<0>();
  sync_threads();
  out[thread_index()] = row[63 - thread_index()];
}

TEST(EmulatorTest, asynchronous_copies_of_single_words_land_when_waited_for) {
  std::vector<float> in(64), out(64);
  for (size_t i = 0; i < 64; ++i) in[i] = static_cast<float>(i + 1);
  expect_good<const float*, float*, bool>(fetch_words_kernel, kOneBlock, in.data(), out.data(),
                                          true);
  for (size_t t = 0; t < 64; ++t) EXPECT_EQ(out[t], t == 62 ? 0.0f : static_cast<float>(64 - t));
  expect_defect<const float*, float*, bool>(DefectKind::kPendingCopy, "has yet to fill",
                                            fetch_words_kernel, kOneBlock, in.data(), out.data(),
                                            false);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
void read_global_kernel(const float* in) {
  [[maybe_unused]] const volatile float value = in[thread_index()];
}

TEST(EmulatorDeathTest, global_memory_out_of_bounds_ends_under_address_sanitizer) {
  const std::vector<float> in(63);
  Launcher launch(1);
  EXPECT_DEATH(launch(read_global_kernel, kOneBlock, in.data()), "heap-buffer-overflow");
}
#endif
#endif

}  // namespace
}  // namespace spillway::kernels::cuda
