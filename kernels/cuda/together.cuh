// What all threads of a block do together: reductions, running sums, searches.
//
// Each holds barriers: all threads of the block call it. What it needs of shared memory is free
// again when it returns.
#pragma once

#include "kernels/cuda/platform.cuh"

namespace spillway::kernels::cuda {

SPILLWAY_DEVICE uint32_t lane_index() { return thread_index() % 32; }
SPILLWAY_DEVICE uint32_t warp_index() { return thread_index() / 32; }

// One value of all threads' by `combine`, which may take them in any order. `scratch` holds one a
// warp.
template <class T, class Combine>
SPILLWAY_DEVICE T reduced(T mine, const Shared<T>& scratch, const Combine& combine) {
  for (uint32_t bits = 16; bits > 0; bits /= 2) mine = combine(mine, shuffle_xor(mine, bits));
  if (lane_index() == 0) scratch[warp_index()] = mine;
  sync_threads();
  T all = scratch[0];
  for (uint32_t warp = 1; warp < block_threads() / 32; ++warp) {
    const T other = scratch[warp];
    all = combine(all, other);
  }
  sync_threads();
  return all;
}

template <class T>
SPILLWAY_DEVICE T greatest_of(T mine, const Shared<T>& scratch) {
  return reduced(mine, scratch, [](T a, T b) { return a > b ? a : b; });
}
template <class T>
SPILLWAY_DEVICE T least_of(T mine, const Shared<T>& scratch) {
  return reduced(mine, scratch, [](T a, T b) { return a < b ? a : b; });
}

struct Place {
  uint32_t before = 0;  // of threads of lower index
  uint32_t all = 0;
};

// Sums of what each thread has. `scratch` holds one a warp.
SPILLWAY_DEVICE Place place_among(uint32_t mine, const Shared<uint32_t>& scratch) {
  uint32_t upto = mine;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t other = shuffle(upto, lane_index() >= step ? lane_index() - step : lane_index());
    if (lane_index() >= step) upto += other;
  }
  if (lane_index() == 31) scratch[warp_index()] = upto;
  sync_threads();
  Place place{.before = upto - mine, .all = 0};
  for (uint32_t warp = 0; warp < block_threads() / 32; ++warp) {
    const uint32_t sum = scratch[warp];
    if (warp < warp_index()) place.before += sum;
    place.all += sum;
  }
  sync_threads();
  return place;
}

struct RunningSums {
  uint32_t count = 0;  // that were taken
  double last = 0;
};

// to[i] = value(0) + ... + value(i), added in that order and no other: one thread adds what all
// have fetched, about 10 cycles each. Stops early, after the first i at least, once a sum has
// reached `enough`. `tile` holds one a thread.
template <class Value>
SPILLWAY_DEVICE RunningSums running_sums(const Value& value, uint32_t n, double enough, double* to,
                                         const Shared<double>& tile) {
  RunningSums sums;
  while (sums.count < n && (sums.count == 0 || !(sums.last >= enough))) {
    const uint32_t i = sums.count + thread_index();
    tile[thread_index()] = i < n ? value(i) : 0.0;
    sync_threads();
    if (thread_index() == 0) {
      double passed = sums.last;
      for (uint32_t j = 0; j < block_threads(); ++j) {
        passed += tile[j];
        tile[j] = passed;
      }
    }
    sync_threads();
    if (i < n) to[i] = tile[thread_index()];
    sums.last = tile[block_threads() - 1];
    sums.count = n - sums.count < block_threads() ? n : sums.count + block_threads();
    sync_threads();
  }
  return sums;
}

// The first i for which `reached(sums[i])`; `count` where there is none. Sums ascend. No barrier:
// each thread finds it.
template <class Reached>
SPILLWAY_DEVICE uint32_t first_reached(const double* sums, uint32_t count, const Reached& reached) {
  uint32_t low = 0, high = count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (reached(sums[middle])) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace spillway::kernels::cuda
