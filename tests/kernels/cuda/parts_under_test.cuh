// The operators of parts_under_test.h: a kernel each around the part.
#pragma once

#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/together.cuh"
#include "tests/kernels/cuda/parts_under_test.h"

namespace spillway::kernels::cuda {

inline constexpr uint32_t kPartThreads = 64;

SPILLWAY_KERNEL void sort_kernel(SortArgs args) {
  SPILLWAY_SHARED(uint64_t, shared_keys, kSortShared);
  SPILLWAY_SHARED(uint32_t, counts, kSortWarps* kDigits);
  SPILLWAY_SHARED(uint32_t, scratch, kSortWarps);
  sort_keys(args.keys, args.spare, args.count, {shared_keys, counts, scratch});
}
template <class Launcher>
void sort(Launcher& launch, const SortArgs& args) {
  launch(sort_kernel, LaunchShape{.grid = {}, .threads = kSortThreads}, args);
}

SPILLWAY_KERNEL void sum_up_kernel(SumsArgs args) {
  SPILLWAY_SHARED(double, tile, kPartThreads);
  const double* const values = args.values;
  const RunningSums all =
      running_sums([values](uint32_t i) { return values[i]; }, args.n, args.enough, args.to, tile);
  if (thread_index() != 0) return;
  const double enough = args.enough;
  *args.first = first_reached(args.to, all.count, [enough](double x) { return x >= enough; });
  *args.last = all.last;
  *args.count = all.count;
}
template <class Launcher>
void sum_up(Launcher& launch, const SumsArgs& args) {
  launch(sum_up_kernel, LaunchShape{.grid = {}, .threads = kPartThreads}, args);
}

SPILLWAY_KERNEL void draw_uniform_kernel(UniformArgs args) {
  for (uint32_t i = thread_index(); i < args.count; i += kPartThreads) {
    args.to[i] = uniform_draw(args.draws[i].seed, args.draws[i].choice, args.draws[i].position);
  }
}
template <class Launcher>
void draw_uniform(Launcher& launch, const UniformArgs& args) {
  launch(draw_uniform_kernel, LaunchShape{.grid = {}, .threads = kPartThreads}, args);
}

SPILLWAY_KERNEL void weigh_kernel(WeightsArgs args) {
  for (uint32_t i = thread_index(); i < args.count; i += kPartThreads) {
    args.to[i] = softmax_weight(args.logits[i], 0, 1);
  }
}
template <class Launcher>
void weigh(Launcher& launch, const WeightsArgs& args) {
  launch(weigh_kernel, LaunchShape{.grid = {}, .threads = kPartThreads}, args);
}

SPILLWAY_KERNEL void take_block_sums_kernel(BlockSumsArgs args) {
  const SampleRow row = sample_row(args.sample, 0);
  for (uint32_t i = thread_index(); i < row.blocks; i += kPartThreads) {
    args.sums[i] = row.block_sums[i];
    args.raw_sums[i] = row.raw_block_sums[i];
  }
}
template <class Launcher>
void take_block_sums(Launcher& launch, const BlockSumsArgs& args) {
  launch(take_block_sums_kernel, LaunchShape{.grid = {}, .threads = kPartThreads}, args);
}

}  // namespace spillway::kernels::cuda
