// What of a row of logits must be known before a token is drawn: the greatest of each 256, and the
// sum of the weights of each 256, in the order of model/softmax.h.
//
// Sketch, H200: 64 rows of 128k logits are 34 MB: read from HBM once (7 us) and from the L2, which
// holds them, again. A thread block takes 8,192 logits, so that one row is 16 blocks and its launch
// a matter of latency, 3 us each. A weight is about 25 instructions and an f64 addition (64 lanes
// an SM): 8.4 million of them 1.5 us.
#pragma once

#include "kernels/cuda/sampling.h"
#include "kernels/cuda/together.cuh"

namespace spillway::kernels::cuda {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();
inline constexpr float kLargestFloat = __FLT_MAX__;
inline constexpr uint32_t kWeightLanes = 8;
inline constexpr uint32_t kWeightThreads = 256;
inline constexpr uint32_t kWeightParts = kWeightThreads / kWeightLanes;  // blocks a thread block

// One row, and its part of the scratch.
struct SampleRow {
  const float* logits;  // as they came: read by logit()
  uint32_t n;
  uint32_t blocks;
  uint64_t* candidates;    // (n)
  uint64_t* spare;         // (n)
  double* running;         // (n), in the place of `spare`
  double* block_sums;      // (blocks): of weights at the row's temperature
  double* raw_block_sums;  // (blocks): at temperature 1
  float* block_maxima;     // (blocks)

  SPILLWAY_DEVICE float logit(uint32_t i) const {
    const float x = logits[i];
    if (x != x) return kMinusInfinity;
    return x > kLargestFloat ? kLargestFloat : x;
  }
};

SPILLWAY_DEVICE SampleRow sample_row(const SampleArgs& args, uint32_t row) {
  std::byte* const scratch = args.scratch + row * sample_row_scratch_bytes(args.n);
  const uint32_t blocks = weight_blocks(args.n);
  SampleRow out{};
  out.logits = args.logits + row * args.stride;
  out.n = args.n;
  out.blocks = blocks;
  out.candidates = reinterpret_cast<uint64_t*>(scratch);
  out.spare = out.candidates + args.n;
  out.running = reinterpret_cast<double*>(out.spare);
  out.block_sums = out.running + args.n;
  out.raw_block_sums = out.block_sums + blocks;
  out.block_maxima = reinterpret_cast<float*>(out.raw_block_sums + blocks);
  return out;
}

// softmax_weight() of model/softmax.h: no product is fused with a sum.
SPILLWAY_DEVICE float softmax_weight(float logit, float max, float inverse_temperature) {
  const float x = (logit - max) * inverse_temperature;
  const float scaled = x < -87.0f ? -87.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float n = (scaled * 1.44269504088896341f + kRound) - kRound;
  const float r = (scaled - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const float power = float_of(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

SPILLWAY_KERNEL void SPILLWAY_THREADS(kWeightThreads) block_maxima_kernel(SampleArgs args) {
  const SampleRow row = sample_row(args, block_index().y);
  for (uint32_t i = warp_index(); i < kWeightParts; i += kWeightThreads / 32) {
    const uint32_t block = block_index().x * kWeightParts + i;
    if (block >= row.blocks) return;
    float greatest = kMinusInfinity;
    for (uint32_t j = lane_index(); j < kWeightBlock; j += 32) {
      const uint32_t at = block * kWeightBlock + j;
      const float x = at < row.n ? row.logit(at) : kMinusInfinity;
      if (x > greatest) greatest = x;
    }
    for (uint32_t bits = 16; bits > 0; bits /= 2) {
      const float other = shuffle_xor(greatest, bits);
      if (other > greatest) greatest = other;
    }
    if (lane_index() == 0) row.block_maxima[block] = greatest;
  }
}

// Of the whole row, from its blocks'. `scratch` holds one a warp.
SPILLWAY_DEVICE float row_maximum(const SampleRow& row, const Shared<float>& scratch) {
  float mine = kMinusInfinity;
  for (uint32_t block = thread_index(); block < row.blocks; block += block_threads()) {
    const float x = row.block_maxima[block];
    if (x > mine) mine = x;
  }
  return greatest_of(mine, scratch);
}

// Of one block's weights: lane j of eight adds up every eighth, then the lanes in a tree. Eight
// threads, of which all get it; those of other blocks in the warp are given theirs.
SPILLWAY_DEVICE double block_sum(const SampleRow& row, uint32_t block, float max,
                                 float inverse_temperature) {
  double sum = 0;
  const uint32_t begin = block * kWeightBlock;
  for (uint32_t i = begin + thread_index() % kWeightLanes; i < row.n && i < begin + kWeightBlock;
       i += kWeightLanes) {
    sum += softmax_weight(row.logit(i), max, inverse_temperature);
  }
  for (uint32_t bits = kWeightLanes / 2; bits > 0; bits /= 2) sum += shuffle_xor(sum, bits);
  return sum;
}

SPILLWAY_DEVICE bool draws_by_weight(const DeviceDraw& draw) {
  return draw.scored < 0 && draw.inverse_temperature > 0;
}

SPILLWAY_KERNEL void SPILLWAY_THREADS(kWeightThreads) block_sums_kernel(SampleArgs args) {
  SPILLWAY_SHARED(float, scratch, kWeightThreads / 32);
  const DeviceDraw& draw = args.draws[block_index().y];
  if (!draws_by_weight(draw) && !draw.reports) return;
  const SampleRow row = sample_row(args, block_index().y);
  const float max = row_maximum(row, scratch);
  if (max == kMinusInfinity) return;  // no token has a weight, and none is asked for
  const uint32_t block = block_index().x * kWeightParts + thread_index() / kWeightLanes;
  const bool writes = block < row.blocks && thread_index() % kWeightLanes == 0;
  if (draws_by_weight(draw)) {
    const double sum = block_sum(row, block, max, draw.inverse_temperature);
    if (writes) row.block_sums[block] = sum;
  }
  if (draw.reports) {
    const double sum = block_sum(row, block, max, 1.0f);
    if (writes) row.raw_block_sums[block] = sum;
  }
}

inline LaunchShape weights_shape(const SampleArgs& args) {
  return {.grid = {(weight_blocks(args.n) + kWeightParts - 1) / kWeightParts, args.rows, 1},
          .threads = kWeightThreads};
}

}  // namespace spillway::kernels::cuda
