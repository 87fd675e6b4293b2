// Drawing a token from a row of logits by temperature, top-k, top-p and min-p (sampling.h): the
// token that model/sampler.h draws. Sums are added in that sampler's order, one after another.
//
// Three launches: maxima and sums of blocks of 256 logits (softmax.cuh), then one thread block of
// 512 a row that chooses. Sketch, H200, a row of 128k logits (64 rows side by side cost the same):
//   no filter   512 sums of blocks in order 3 us, one block's 256 weights 2 us
//   top-k <= 512  the k-th greatest of the blocks' maxima bounds the k-th greatest logit, so only
//               k blocks are looked into: 6 us to sort the maxima, 2 us to gather, 2 us to sort
//   top-p, min-p  two passes over the blocks that hold weight enough, 4 us each from the L2; then
//               what is left is sorted (sort.cuh) and added up in order, 6 us a thousand
// A flat row under top-p leaves all its tokens: about 1 ms, nearly all of it the sum in order. A
// model's rows leave hundreds.
#pragma once

#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/sort.cuh"

namespace spillway::kernels::cuda {

// An integer that ascends as the logit descends; -0 and 0 are one. And a logit of it.
SPILLWAY_DEVICE uint32_t descending_key(float logit) {
  const uint32_t bits = bits_of(logit + 0.0f);
  return ~((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u);
}
SPILLWAY_DEVICE float logit_of_key(uint32_t key) {
  const uint32_t ascending = ~key;
  return float_of((ascending & 0x80000000u) != 0 ? ascending & 0x7fffffffu : ~ascending);
}

// A candidate's place in all selections: greater logits first, ties by lower token.
SPILLWAY_DEVICE uint64_t candidate_of(float logit, uint32_t token) {
  return uint64_t{descending_key(logit)} << 32 | token;
}

struct DrawMemory {
  SortMemory sort;
  Shared<double> tile;    // (kSortThreads)
  Shared<float> maxima;   // (kSortWarps)
  Shared<uint32_t> word;  // (1)
};

// What one thread block does for one row; all its threads call all of it.
class RowDraw {
 public:
  SPILLWAY_DEVICE RowDraw(const SampleRow& row, const DeviceDraw& draw, const DrawMemory& memory)
      : row_(row), draw_(draw), memory_(memory), max_(row_maximum(row, memory.maxima)) {}

  SPILLWAY_DEVICE uint32_t token() const {
    if (draw_.scored >= 0) return static_cast<uint32_t>(draw_.scored);
    if (max_ == kMinusInfinity) return 0;
    if (draw_.inverse_temperature == 0) return first_greatest();
    const double uniform = uniform_draw(draw_.seed, draw_.choice, draw_.position);
    const bool top_k = draw_.top_k > 0 && draw_.top_k < row_.n;
    if (!top_k && !(draw_.min_p > 0) && !(draw_.top_p < 1)) return from_all(uniform);
    return from_candidates(uniform, top_k);
  }

  SPILLWAY_DEVICE void report(uint32_t token, DeviceReport& to) const {
    const float logit = row_.logit(token);
    uint32_t before = 0;
    for (uint32_t i = thread_index(); i < row_.n; i += kSortThreads) {
      const float x = row_.logit(i);
      if (x > logit || (x == logit && i < token)) ++before;
    }
    const uint32_t rank = place_among(before, memory_.sort.scratch).all;
    double sum = 0;
    if (max_ > kMinusInfinity) sum = all_sums(row_.raw_block_sums).last;
    if (thread_index() == 0) {
      to = {.weight_sum = sum, .logit = logit, .maximum = max_, .rank = rank};
    }
  }

 private:
  SPILLWAY_DEVICE float weight(float logit) const {
    return softmax_weight(logit, max_, draw_.inverse_temperature);
  }
  SPILLWAY_DEVICE float candidate_weight(uint32_t i) const {
    return weight(logit_of_key(static_cast<uint32_t>(row_.candidates[i] >> 32)));
  }

  SPILLWAY_DEVICE RunningSums all_sums(const double* block_sums) const {
    return running_sums([block_sums](uint32_t i) { return block_sums[i]; }, row_.blocks,
                        __builtin_huge_val(), row_.running, memory_.tile);
  }

  SPILLWAY_DEVICE uint32_t first_greatest() const {
    uint32_t mine = row_.blocks;
    for (uint32_t block = thread_index(); block < row_.blocks; block += kSortThreads) {
      if (block < mine && row_.block_maxima[block] == max_) mine = block;
    }
    const uint32_t block = least_of(mine, memory_.sort.scratch);
    const uint32_t at = block * kWeightBlock + thread_index();
    const bool is_it = thread_index() < kWeightBlock && at < row_.n && row_.logit(at) == max_;
    return least_of(is_it ? at : 0xffffffffu, memory_.sort.scratch);
  }

  // Inverts the cumulative distribution in token order: blocks first, then within one.
  SPILLWAY_DEVICE uint32_t from_all(double uniform) const {
    const double target = uniform * all_sums(row_.block_sums).last;
    uint32_t block = first_reached(row_.running, row_.blocks,
                                   [target](double passed) { return passed > target; });
    if (block == row_.blocks) --block;
    const uint32_t begin = block * kWeightBlock;
    const uint32_t count = row_.n - begin < kWeightBlock ? row_.n - begin : kWeightBlock;
    if (thread_index() < count) {
      memory_.tile[thread_index()] = weight(row_.logit(begin + thread_index()));
    }
    sync_threads();
    if (thread_index() == 0) {
      double passed = block == 0 ? 0 : row_.running[block - 1];
      uint32_t last = 0;  // rounding can leave the target just past the block's own sum
      for (uint32_t i = 0; i < count && !(passed > target); ++i) {
        const double here = memory_.tile[i];
        if (here > 0) last = i;
        passed += here;
      }
      memory_.word[0] = begin + last;
    }
    sync_threads();
    const uint32_t token = memory_.word[0];
    sync_threads();
    return token;
  }

  SPILLWAY_DEVICE uint32_t from_candidates(double uniform, bool top_k) const {
    const bool only_top_p = !top_k && draw_.min_p <= 0;
    const double total = top_k ? 0 : all_sums(row_.block_sums).last;
    uint32_t count = top_k ? gather_top() : gather_heavy(only_top_p, total);
    sort_keys(row_.candidates, row_.spare, count, memory_.sort);
    if (top_k) count = kept_by_min_p(count < draw_.top_k ? count : draw_.top_k);

    const double top_p = draw_.top_p;
    const double enough = only_top_p ? top_p * total : __builtin_huge_val();
    const RunningSums sums = running_sums([this](uint32_t i) { return candidate_weight(i); }, count,
                                          enough, row_.running, memory_.tile);
    count = sums.count;
    if (draw_.top_p < 1) {
      const double share = top_p * (only_top_p ? total : sums.last);
      const uint32_t last =
          first_reached(row_.running, count, [share](double passed) { return passed >= share; });
      if (last < count) count = last + 1;
    }
    const double target = uniform * row_.running[count - 1];
    const uint32_t chosen =
        first_reached(row_.running, count, [target](double passed) { return passed > target; });
    return static_cast<uint32_t>(row_.candidates[chosen < count ? chosen : 0]);
  }

  // Candidates among which are the top_k first, unless there are fewer. At least so many blocks
  // have a maximum of the k-th greatest maximum or more; so have as many logits.
  SPILLWAY_DEVICE uint32_t gather_top() const {
    uint32_t last = 0xffffffffu;  // key of the last that is taken
    if (draw_.top_k <= row_.blocks && row_.blocks <= kSortShared) {
      const float* const maxima = row_.block_maxima;
      sort_into_shared([maxima](uint32_t i) { return uint64_t{descending_key(maxima[i])}; },
                       row_.blocks, memory_.sort.keys);
      last = static_cast<uint32_t>(uint64_t{memory_.sort.keys[draw_.top_k - 1]});
    }
    return gather(
        [this, last](uint32_t block) { return descending_key(row_.block_maxima[block]) <= last; },
        [last](float logit) { return logit > kMinusInfinity && descending_key(logit) <= last; });
  }

  // Candidates that min-p leaves; or, where only top-p is to follow, all but those too light to be
  // in it: n of them weigh less than half of what top-p drops. A block's sum is no less than any
  // weight in it.
  SPILLWAY_DEVICE uint32_t gather_heavy(bool only_top_p, double total) const {
    const double dropped = 1.0 - static_cast<double>(draw_.top_p);
    const double light = 0.5 * (dropped > 0 ? dropped : 0.0) * total / static_cast<double>(row_.n);
    float floor = only_top_p ? static_cast<float>(light) : draw_.min_p;
    if (floor > 1.0f) floor = 1.0f;
    if (floor < __FLT_MIN__) floor = __FLT_MIN__;
    return gather([this, floor](uint32_t block) { return row_.block_sums[block] >= floor; },
                  [this, floor](float logit) { return weight(logit) >= floor; });
  }

  // All tokens that are taken, ascending; in blocks that may have some. Each warp has a run of
  // blocks, and counts before it writes.
  template <class MayHave, class Takes>
  SPILLWAY_DEVICE uint32_t gather(const MayHave& may_have, const Takes& takes) const {
    const uint32_t run = (row_.blocks + kSortWarps - 1) / kSortWarps;
    const uint32_t first = warp_index() * run;
    const uint32_t end = first + run < row_.blocks ? first + run : row_.blocks;
    const uint32_t lower = (1u << lane_index()) - 1;
    Place place;
    for (uint32_t pass = 0; pass < 2; ++pass) {
      uint32_t at = place.before;
      for (uint32_t block = first; block < end; ++block) {
        if (!may_have(block)) continue;
        for (uint32_t i = 0; i < kWeightBlock; i += 32) {
          const uint32_t token = block * kWeightBlock + i + lane_index();
          const float logit = token < row_.n ? row_.logit(token) : kMinusInfinity;
          const bool taken = token < row_.n && takes(logit);
          const uint32_t votes = ballot(taken);
          if (pass == 1 && taken) {
            row_.candidates[at + count_bits(votes & lower)] = candidate_of(logit, token);
          }
          at += count_bits(votes);
        }
      }
      if (pass == 0) {
        place = place_among(lane_index() == 0 ? at : 0, memory_.sort.scratch);
        place.before = shuffle(place.before, 0);
      }
    }
    sync_threads();
    return place.all;
  }

  // From the back on, those of less weight than min_p go; the first stays.
  SPILLWAY_DEVICE uint32_t kept_by_min_p(uint32_t count) const {
    if (!(draw_.min_p > 0)) return count;
    uint32_t mine = 1;
    for (uint32_t i = thread_index(); i < count; i += kSortThreads) {
      if (candidate_weight(i) >= draw_.min_p && i + 1 > mine) mine = i + 1;
    }
    return greatest_of(mine, memory_.sort.scratch);
  }

  const SampleRow row_;
  const DeviceDraw& draw_;
  const DrawMemory& memory_;
  const float max_;
};

SPILLWAY_KERNEL void SPILLWAY_THREADS(kSortThreads) draw_kernel(SampleArgs args) {
  SPILLWAY_SHARED(uint64_t, keys, kSortShared);
  SPILLWAY_SHARED(uint32_t, counts, kSortWarps* kDigits);
  SPILLWAY_SHARED(uint32_t, scratch, kSortWarps);
  SPILLWAY_SHARED(double, tile, kSortThreads);
  SPILLWAY_SHARED(float, maxima, kSortWarps);
  SPILLWAY_SHARED(uint32_t, word, 1);
  const uint32_t index = block_index().x;
  const DeviceDraw draw = args.draws[index];
  const DrawMemory memory{{keys, counts, scratch}, tile, maxima, word};
  const RowDraw row(sample_row(args, index), draw, memory);
  const uint32_t token = row.token();
  if (thread_index() == 0) args.tokens[index] = static_cast<int32_t>(token);
  if (draw.reports) row.report(token, args.reports[index]);
}

template <class Launcher>
void sample(Launcher& launch, const SampleArgs& args) {
  launch(block_maxima_kernel, weights_shape(args), args);
  launch(block_sums_kernel, weights_shape(args), args);
  launch(draw_kernel, LaunchShape{.grid = {args.rows, 1, 1}, .threads = kSortThreads}, args);
}

}  // namespace spillway::kernels::cuda
