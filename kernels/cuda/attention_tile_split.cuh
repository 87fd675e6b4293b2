// One split of a tile of attention_tile.cuh: scores, p, and sums over values, in registers; and
// what becomes of the sums at its end.
#pragma once

#include "kernels/cuda/attention_split.cuh"
#include "kernels/cuda/attention_tile_work.cuh"

namespace spillway::kernels::cuda {

// `kCount` (2 or 4) stored values, widened.
template <KvType kType, uint32_t kCount, class Stored>
SPILLWAY_DEVICE void load_widened(const Shared<Stored>& from, uint32_t at, float (&to)[kCount]) {
  struct alignas(kCount * sizeof(Stored)) Pairs {
    typename KvCodec<kType>::Pair pair[kCount / 2];
  };
  const Pairs pairs = from.template load<Pairs>(at);
  SPILLWAY_UNROLL
  for (uint32_t i = 0; i < kCount / 2; ++i) {
    const Float2 two = KvCodec<kType>::widen_pair(pairs.pair[i]);
    to[2 * i] = two.x;
    to[2 * i + 1] = two.y;
  }
}

// Goes on with the scores of a block over a quarter of the dimensions.
template <KvType kType, class Shape>
SPILLWAY_DEVICE void add_scores(const TileWork<Shape>& work, uint32_t head_dim, uint32_t part,
                                const Shared<typename Shape::Stored>& stage,
                                TileSums<Shape>& sums) {
  const uint32_t first = part * Shape::kStageDims;
  const uint32_t end = first + Shape::kStageDims < head_dim ? first + Shape::kStageDims : head_dim;
  for (uint32_t d = first; d < end; ++d) {
    const auto four = work.q.template load<Float4>(d * Shape::kRows + kThreadRows * work.group());
    const float q[kThreadRows] = {four.x, four.y, four.z, four.w};
    float k[Shape::kTokens];
    load_widened<kType>(stage, (d - first) * kAttentionBlockTokens + Shape::kTokens * work.lane(),
                        k);
    SPILLWAY_UNROLL
    for (uint32_t r = 0; r < kThreadRows; ++r) {
      SPILLWAY_UNROLL
      for (uint32_t t = 0; t < Shape::kTokens; ++t) {
        sums.scores[r][t] = fused(q[r], k[t], sums.scores[r][t]);
      }
    }
  }
}

// Adds p of a block to the 16 sums that each row has, lane = token % 16: by two exchanges every
// thread gets the four tokens' sum of each of its lanes, and keeps those of one of the rows.
template <class Shape>
SPILLWAY_DEVICE void add_to_lanes(const TileWork<Shape>& work, const float (&factors)[kThreadRows],
                                  TileSums<Shape>& sums) {
  const uint32_t mine = work.lane() / Shape::kSumLanes;  // the row
  SPILLWAY_UNROLL
  for (uint32_t t = 0; t < Shape::kTokens; ++t) {
    SPILLWAY_UNROLL
    for (uint32_t r = 0; r < kThreadRows; ++r) {
      const float two = sums.scores[r][t] + shuffle_xor(sums.scores[r][t], Shape::kSumLanes);
      const float four = two + shuffle_xor(two, 2 * Shape::kSumLanes);
      if (r == mine) sums.lanes[t] = sums.lanes[t] * factors[r] + four;
    }
  }
}

// From a block's finished scores to p, in shared memory and in the sums; clears the scores.
template <class Shape>
SPILLWAY_DEVICE void finish_scores(const AttentionArgs& args, const TileWork<Shape>& work,
                                   uint32_t start, TileSums<Shape>& sums) {
  constexpr float kUnseen = -__builtin_huge_valf();
  const bool full = work.all_see(start, start + kAttentionBlockTokens);
  float factors[kThreadRows];
  SPILLWAY_UNROLL
  for (uint32_t r = 0; r < kThreadRows; ++r) {
    uint32_t begin = 0, end = 0;
    if (!full) {
      const uint32_t position = work.positions[kThreadRows * work.group() + r];
      begin = first_token_seen(args.kv.layout, position);
      end = position + 1;
    }
    float greatest = kUnseen;
    SPILLWAY_UNROLL
    for (uint32_t t = 0; t < Shape::kTokens; ++t) {
      const uint32_t token = start + Shape::kTokens * work.lane() + t;
      float& score = sums.scores[r][t];
      score = capped_score(args.scaling, score);
      if (!full && !(token >= begin && token < end)) score = kUnseen;
      greatest = greatest < score ? score : greatest;
    }
    SPILLWAY_UNROLL
    for (uint32_t bits = Shape::kLanes / 2; bits > 0; bits /= 2) {
      const float other = shuffle_xor(greatest, bits);
      greatest = greatest < other ? other : greatest;
    }
    factors[r] = 1;
    if (greatest > sums.reference[r] + kReferenceSlack) {
      factors[r] = power_of_2(sums.reference[r] - greatest);
      sums.reference[r] = greatest;
    }
    SPILLWAY_UNROLL
    for (uint32_t t = 0; t < Shape::kTokens; ++t) {
      sums.scores[r][t] = power_of_2(sums.scores[r][t] - sums.reference[r]);
    }
    SPILLWAY_UNROLL
    for (uint32_t d = 0; d < Shape::kDims; ++d) sums.out[r][d] *= factors[r];
  }
  add_to_lanes(work, factors, sums);
  SPILLWAY_UNROLL
  for (uint32_t t = 0; t < Shape::kTokens; ++t) {
    const uint32_t at = work.p_index(Shape::kTokens * work.lane() + t);
    work.p.store(
        at, Float4{sums.scores[0][t], sums.scores[1][t], sums.scores[2][t], sums.scores[3][t]});
    SPILLWAY_UNROLL
    for (uint32_t r = 0; r < kThreadRows; ++r) sums.scores[r][t] = 0;
  }
}

// Adds V of 16 tokens, the first of them `token` of the block at `start`. kFull: all rows see all.
template <KvType kType, bool kFull, class Shape>
SPILLWAY_DEVICE void add_values(const KvGroupLayout& layout, const TileWork<Shape>& work,
                                uint32_t start, uint32_t token,
                                const Shared<typename Shape::Stored>& stage,
                                TileSums<Shape>& sums) {
  for (uint32_t i = 0; i < kKvBlockTokens; ++i) {
    const auto four = work.p.template load<Float4>(work.p_index(token + i));
    const float p[kThreadRows] = {four.x, four.y, four.z, four.w};
    bool sees[kThreadRows] = {};
    SPILLWAY_UNROLL
    for (uint32_t r = 0; r < kThreadRows && !kFull; ++r) {
      const uint32_t position = work.positions[kThreadRows * work.group() + r];
      sees[r] =
          start + token + i <= position && start + token + i >= first_token_seen(layout, position);
    }
    SPILLWAY_UNROLL
    for (uint32_t j = 0; j < Shape::kDims; j += 4) {
      const uint32_t dim = 4 * work.lane() + Shape::kLanes * j;
      if (dim >= layout.head_dim) continue;
      float v[4];
      load_widened<kType>(stage, i * layout.head_dim + dim, v);
      SPILLWAY_UNROLL
      for (uint32_t r = 0; r < kThreadRows; ++r) {
        SPILLWAY_UNROLL
        for (uint32_t d = 0; d < 4; ++d) {
          const float sum = fused(p[r], v[d], sums.out[r][j + d]);
          if (kFull || sees[r]) sums.out[r][j + d] = sum;
        }
      }
    }
  }
}

// The sum of p of each row over a split, in every thread that has the row.
template <class Shape>
SPILLWAY_DEVICE void sums_of_p(TileSums<Shape>& sums, float (&to)[kThreadRows]) {
  constexpr uint32_t kTokens = Shape::kTokens;
  SPILLWAY_UNROLL
  for (uint32_t half = 8; half >= kTokens; half /= 2) {  // in other threads
    SPILLWAY_UNROLL
    for (uint32_t t = 0; t < kTokens; ++t) {
      sums.lanes[t] += shuffle_xor(sums.lanes[t], half / kTokens);
    }
  }
  SPILLWAY_UNROLL
  for (uint32_t half = kTokens / 2; half > 0; half /= 2) {
    SPILLWAY_UNROLL
    for (uint32_t t = 0; t < half; ++t) sums.lanes[t] += sums.lanes[t + half];
  }
  const uint32_t first = thread_index() % 32 / Shape::kLanes * Shape::kLanes;  // of the warp
  SPILLWAY_UNROLL
  for (uint32_t r = 0; r < kThreadRows; ++r) {
    to[r] = shuffle(sums.lanes[0], first + r * Shape::kSumLanes);
  }
}

template <class Shape>
SPILLWAY_DEVICE void clear_split(TileSums<Shape>& sums) {
  SPILLWAY_UNROLL
  for (uint32_t r = 0; r < kThreadRows; ++r) {
    sums.reference[r] = -3.402823466e38f;  // the lowest
    SPILLWAY_UNROLL
    for (uint32_t d = 0; d < Shape::kDims; ++d) sums.out[r][d] = 0;
  }
  SPILLWAY_UNROLL
  for (uint32_t t = 0; t < Shape::kTokens; ++t) sums.lanes[t] = 0;
}

// Leaves row r's sums of a split for the merge, if the row sees any of it.
template <class Shape>
SPILLWAY_DEVICE void store_partial(const AttentionArgs& args, const TileWork<Shape>& work,
                                   uint32_t split, uint32_t r, float sum,
                                   const TileSums<Shape>& sums) {
  const uint32_t row = kThreadRows * work.group() + r;
  const uint32_t dims = args.kv.layout.head_dim;
  const uint32_t query = work.query_of(row);
  const uint32_t position = work.positions[row];
  const uint32_t first = first_token_seen(args.kv.layout, position) / kAttentionSplitTokens;
  if (split < first || split > position / kAttentionSplitTokens) return;
  const uint32_t head = work.first_head + row % work.heads;
  const size_t partial = (size_t{query} * args.heads + head) * args.splits_max + (split - first);
  if (work.lane() == 0) {
    args.partial_sums[2 * partial] = sums.reference[r];
    args.partial_sums[2 * partial + 1] = sum;
  }
  SPILLWAY_UNROLL
  for (uint32_t d = 0; d < Shape::kDims; ++d) {
    const uint32_t dim = 4 * (work.lane() + Shape::kLanes * (d / 4)) + d % 4;
    if (dim < dims) args.partial_outs[partial * dims + dim] = sums.out[r][d];
  }
}

// Merges row r's sums of a split into its totals, as attention_merge_kernel does; what the row does
// not see leaves them as they are. `out` has the totals between splits, and the result at the end.
template <class Shape>
SPILLWAY_DEVICE void merge_split(const AttentionArgs& args, const TileWork<Shape>& work,
                                 bool is_first, bool is_last, uint32_t r, float sum,
                                 TileSums<Shape>& sums) {
  const uint32_t row = kThreadRows * work.group() + r;
  const uint32_t dims = args.kv.layout.head_dim;
  const float maximum = sums.total_maximum[r];
  const float greater = maximum < sums.reference[r] ? sums.reference[r] : maximum;
  const float old_factor = power_of_2(maximum - greater);
  const float new_factor = power_of_2(sums.reference[r] - greater);
  sums.total_maximum[r] = greater;
  sums.total_sum[r] = fused(sum, new_factor, sums.total_sum[r] * old_factor);
  if (row >= work.rows()) return;
  float* out = args.out + args.queries[work.query_of(row)].row * args.out_stride +
               (work.first_head + row % work.heads) * dims;
  SPILLWAY_UNROLL
  for (uint32_t d = 0; d < Shape::kDims; ++d) {
    const uint32_t dim = 4 * (work.lane() + Shape::kLanes * (d / 4)) + d % 4;
    if (dim >= dims) continue;
    const float before = is_first ? 0.0f : out[dim];
    const float value = fused(sums.out[r][d], new_factor, before * old_factor);
    out[dim] = is_last ? value * (1.0f / sums.total_sum[r]) + 0.0f : value;
  }
}

template <class Shape>
SPILLWAY_DEVICE void finish_split(const AttentionArgs& args, const TileWork<Shape>& work,
                                  uint32_t split, TileSums<Shape>& sums) {
  float sum[kThreadRows];
  sums_of_p(sums, sum);
  const bool is_first = split == work.seen_begin / kAttentionSplitTokens;
  const bool is_last = split == (work.seen_end - 1) / kAttentionSplitTokens;
  SPILLWAY_UNROLL
  for (uint32_t r = 0; r < kThreadRows; ++r) {
    if (work.tile.whole) {
      merge_split(args, work, is_first, is_last, r, sum[r], sums);
    } else if (kThreadRows * work.group() + r < work.rows()) {
      store_partial(args, work, split, r, sum[r], sums);
    }
  }
  clear_split(sums);
}

}  // namespace spillway::kernels::cuda
