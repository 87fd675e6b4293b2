// Paged attention for decode: one query row over its pages by the one tree of attention.h, the
// heads of a GQA or MQA group in one pass.
//
// A block of threads has one split of 512 tokens for one KV head and up to eight of its query
// heads:
//   1. each warp scores one 64-token block, two tokens a lane (K lies [head_dim][16]);
//   2. the reference moves from block to block, ascending; p = 2^(score - reference);
//   3. each thread sums two dimensions over the tokens, ascending (V lies [16][head_dim]).
// attention.cuh then merges the splits in ascending order.
//
// Sketch, H200, head_dim 128, f16, groups of 4: a split is 262 KB of K and V, 12,700 cycles at an
// SM's share of 4.8 TB/s. It issues about 27,000 warp instructions (26 for 2 dimensions of 64
// tokens and 4 heads in part 1, 26 a token in part 3), 7,000 cycles. Part 3 is a chain of 512 FMAs
// a thread, 2,050 cycles, in which a block's other warps rest: so it takes four blocks an SM side
// by side (64 registers a thread, 11 KB of shared memory) to keep the 16 KB under way that hide a
// latency of 800 cycles. Memory bound then: a step of 64 streams at 8k, 8 KV heads, reads 2.1 GB a
// layer, 450 us. Groups of 8 issue about 12,000 cycles' worth and need 80 registers and 22 KB:
// three blocks an SM, 12 KB under way, so about 600 us.
#pragma once

#include "kernels/cuda/math.cuh"
#include "kernels/cuda/paged.cuh"

namespace spillway::kernels::cuda {

inline constexpr uint32_t kAttentionThreads = 256;
inline constexpr uint32_t kSplitBlocks = kAttentionSplitTokens / kAttentionBlockTokens;
static_assert(kAttentionThreads / 32 == kSplitBlocks, "a warp scores a block");

// What one block of threads works on.
template <uint32_t kHeads>
struct SplitWork {
  const DeviceKv& kv;
  const PageId* table;
  uint32_t layer;
  uint32_t kv_head;
  uint32_t first_token;  // of the split
  uint32_t seen_begin;   // tokens that the query sees, within the split
  uint32_t seen_end;
  Shared<float> q;           // (kHeads, head_dim), scaled; heads that are not there are zero
  Shared<float> scores;      // (kHeads, 512): then p
  Shared<float> maxima;      // (kHeads, block)
  Shared<float> references;  // (kHeads, block)
  Shared<float> factors;     // (kHeads, block)
};

SPILLWAY_DEVICE float capped_score(const AttentionScaling& scaling, float sum) {
  if (scaling.cap == 0) return sum;
  const float power = power_of_2(kSoftCapPowerMax < sum ? kSoftCapPowerMax : sum);
  return fused(-2.0f * scaling.cap, 1.0f / (power + 1.0f), scaling.cap);
}

// Part 1, by one warp: the scores of its block, and the greatest of each head.
template <KvType kType, uint32_t kHeads>
SPILLWAY_DEVICE void score_block(const SplitWork<kHeads>& work, const AttentionScaling& scaling) {
  using Codec = KvCodec<kType>;
  constexpr float kUnseen = -__builtin_huge_valf();
  const uint32_t dims = work.kv.layout.head_dim;
  const uint32_t warp = thread_index() / 32;
  const uint32_t lane = thread_index() % 32;
  const uint32_t at = warp * kAttentionBlockTokens + 2 * lane;  // in the split
  const uint32_t token = work.first_token + at;
  const bool seen[2] = {token >= work.seen_begin && token < work.seen_end,
                        token + 1 >= work.seen_begin && token + 1 < work.seen_end};
  float sums[kHeads][2] = {};
  if (seen[0] || seen[1]) {
    const std::byte* block =
        kv_block(work.kv, work.table, work.layer, work.kv_head, token / kKvBlockTokens);
    const auto* keys =
        reinterpret_cast<const typename Codec::Pair*>(block) + token % kKvBlockTokens / 2;
    for (uint32_t d = 0; d < dims; d += 2) {
      const Float2 even = Codec::widen_pair(keys[d * kKvBlockTokens / 2]);
      const Float2 odd = Codec::widen_pair(keys[(d + 1) * kKvBlockTokens / 2]);
      SPILLWAY_UNROLL
      for (uint32_t h = 0; h < kHeads; ++h) {
        const Float2 q = work.q.template load<Float2>(h * dims + d);
        sums[h][0] = fused(q.y, odd.x, fused(q.x, even.x, sums[h][0]));
        sums[h][1] = fused(q.y, odd.y, fused(q.x, even.y, sums[h][1]));
      }
    }
  }
  SPILLWAY_UNROLL
  for (uint32_t h = 0; h < kHeads; ++h) {
    const Float2 score{seen[0] ? capped_score(scaling, sums[h][0]) : kUnseen,
                       seen[1] ? capped_score(scaling, sums[h][1]) : kUnseen};
    work.scores.store(h * kAttentionSplitTokens + at, score);
    float greatest = score.x < score.y ? score.y : score.x;
    for (uint32_t bits = 16; bits > 0; bits /= 2) {
      const float other = shuffle_xor(greatest, bits);
      greatest = greatest < other ? other : greatest;
    }
    if (lane == 0) work.maxima[h * kSplitBlocks + warp] = greatest;
  }
}

// Part 2, one thread a head: where the reference stands in each block, and by how much it moved.
template <uint32_t kHeads>
SPILLWAY_DEVICE void move_reference(const SplitWork<kHeads>& work, uint32_t head) {
  float reference = -3.402823466e38f;  // the lowest
  for (uint32_t b = 0; b < kSplitBlocks; ++b) {
    const float greatest = work.maxima[head * kSplitBlocks + b];
    float factor = 1;
    if (greatest > reference + kReferenceSlack) {
      factor = power_of_2(reference - greatest);
      reference = greatest;
    }
    work.references[head * kSplitBlocks + b] = reference;
    work.factors[head * kSplitBlocks + b] = factor;
  }
}

template <uint32_t kHeads>
SPILLWAY_DEVICE void raise_scores(const SplitWork<kHeads>& work) {
  for (uint32_t i = thread_index(); i < kHeads * kAttentionSplitTokens; i += kAttentionThreads) {
    const float reference = work.references[i / kAttentionBlockTokens];
    work.scores[i] = power_of_2(work.scores[i] - reference);
  }
}

// The sum of p of head thread_index() / 16, in 16 lanes that are folded at the end. By whole warps.
template <uint32_t kHeads>
SPILLWAY_DEVICE float sum_of_scores(const SplitWork<kHeads>& work) {
  const uint32_t head = thread_index() / 16;
  const uint32_t lane = thread_index() % 16;
  float sum = 0;
  if (head < kHeads) {
    for (uint32_t b = 0; b < kSplitBlocks; ++b) {
      const Shared<float> p =
          work.scores.part(head * kAttentionSplitTokens + b * kAttentionBlockTokens + lane);
      const float factor = work.factors[head * kSplitBlocks + b];
      sum = sum * factor + ((p[0] + p[16]) + (p[32] + p[48]));
    }
  }
  for (uint32_t half = 8; half > 0; half /= 2) sum += shuffle_xor(sum, half);
  return sum;
}

template <uint32_t kHeads>
SPILLWAY_DEVICE void add_value(Float2 (&sums)[kHeads], uint32_t head, float p, const Float2& v) {
  sums[head] = {fused(p, v.x, sums[head].x), fused(p, v.y, sums[head].y)};
}

// Adds tokens [begin, end) of a block of 16, `at` its first in the split; `values` are its V.
template <KvType kType, uint32_t kHeads>
SPILLWAY_DEVICE void add_values(const SplitWork<kHeads>& work, uint32_t at, uint32_t begin,
                                uint32_t end, const typename KvCodec<kType>::Pair* values,
                                Float2 (&sums)[kHeads]) {
  using Codec = KvCodec<kType>;
  const uint32_t row = work.kv.layout.head_dim / 2;  // of V, in pairs
  uint32_t t = begin;
  for (; t % 4 == 0 && t + 4 <= end; t += 4) {
    Float2 v[4];
    SPILLWAY_UNROLL
    for (uint32_t i = 0; i < 4; ++i) v[i] = Codec::widen_pair(values[(t + i) * row]);
    SPILLWAY_UNROLL
    for (uint32_t h = 0; h < kHeads; ++h) {
      const auto p = work.scores.template load<Float4>(h * kAttentionSplitTokens + at + t);
      add_value(sums, h, p.x, v[0]);
      add_value(sums, h, p.y, v[1]);
      add_value(sums, h, p.z, v[2]);
      add_value(sums, h, p.w, v[3]);
    }
  }
  for (; t < end; ++t) {
    const Float2 v = Codec::widen_pair(values[t * row]);
    SPILLWAY_UNROLL
    for (uint32_t h = 0; h < kHeads; ++h) {
      add_value(sums, h, work.scores[h * kAttentionSplitTokens + at + t], v);
    }
  }
}

// Part 3: dimensions 2 * pair and the next, of all heads.
template <KvType kType, uint32_t kHeads>
SPILLWAY_DEVICE void sum_values(const SplitWork<kHeads>& work, uint32_t pair,
                                Float2 (&sums)[kHeads]) {
  using Pair = typename KvCodec<kType>::Pair;
  for (uint32_t b = 0; b < kSplitBlocks; ++b) {
    SPILLWAY_UNROLL
    for (uint32_t h = 0; h < kHeads; ++h) {
      const float factor = work.factors[h * kSplitBlocks + b];
      sums[h] = {sums[h].x * factor, sums[h].y * factor};
    }
    for (uint32_t first = 0; first < kAttentionBlockTokens; first += kKvBlockTokens) {
      const uint32_t at = b * kAttentionBlockTokens + first;
      const uint32_t start = work.first_token + at;
      const uint32_t past = start + kKvBlockTokens;
      const uint32_t begin = start < work.seen_begin ? work.seen_begin : start;
      const uint32_t end = past < work.seen_end ? past : work.seen_end;
      if (begin >= end) continue;
      const std::byte* block =
          kv_block(work.kv, work.table, work.layer, work.kv_head, start / kKvBlockTokens);
      const auto* values = reinterpret_cast<const Pair*>(block + work.kv.layout.block_bytes());
      add_values<kType>(work, at, begin - start, end - start, values + pair, sums);
    }
  }
}

template <KvType kType, uint32_t kHeads>
SPILLWAY_KERNEL void attention_split_kernel(AttentionArgs args) {
  SPILLWAY_SHARED(float, scores, kHeads * kAttentionSplitTokens);
  SPILLWAY_SHARED(float, maxima, kHeads * kSplitBlocks);
  SPILLWAY_SHARED(float, references, kHeads * kSplitBlocks);
  SPILLWAY_SHARED(float, factors, kHeads * kSplitBlocks);
  const KvGroupLayout& layout = args.kv.layout;
  const Shared<float> q = dynamic_shared<float>(0, kHeads * layout.head_dim);
  const DeviceQuery query = args.queries[block_index().z];
  if (block_index().x < query.first_own_split ||
      block_index().x >= splits_seen(layout, query.position)) {
    return;
  }
  const uint32_t seen_first = first_token_seen(layout, query.position);
  const uint32_t split = seen_first / kAttentionSplitTokens + block_index().x;
  const uint32_t group = args.heads / layout.kv_heads;
  const uint32_t chunks = (group + kHeads - 1) / kHeads;  // of a group's heads
  const uint32_t kv_head = block_index().y / chunks;
  const uint32_t first_of_group = block_index().y % chunks * kHeads;
  const uint32_t left = group - first_of_group;
  const uint32_t count = left < kHeads ? left : kHeads;
  const uint32_t first_head = kv_head * group + first_of_group;
  const float* row = args.q + query.row * args.q_stride + first_head * layout.head_dim;
  for (uint32_t i = thread_index(); i < kHeads * layout.head_dim; i += kAttentionThreads) {
    q[i] = i < count * layout.head_dim ? row[i] * args.scaling.query : 0.0f;
  }
  const SplitWork<kHeads> work{args.kv,
                               query.table,
                               args.layer,
                               kv_head,
                               split * kAttentionSplitTokens,
                               seen_first,
                               query.position + 1,
                               q,
                               scores,
                               maxima,
                               references,
                               factors};
  sync_threads();
  score_block<kType, kHeads>(work, args.scaling);
  sync_threads();
  if (thread_index() < kHeads) move_reference(work, thread_index());
  sync_threads();
  raise_scores(work);
  sync_threads();
  const size_t first_partial =
      (size_t{block_index().z} * args.heads + first_head) * args.splits_max + block_index().x;
  if (thread_index() < (kHeads * 16 + 31) / 32 * 32) {
    const float sum = sum_of_scores(work);
    const uint32_t head = thread_index() / 16;
    if (head < count && thread_index() % 16 == 0) {
      float* to = args.partial_sums + 2 * (first_partial + head * args.splits_max);
      to[0] = references[head * kSplitBlocks + kSplitBlocks - 1];
      to[1] = sum;
    }
  }
  for (uint32_t pair = thread_index(); pair < layout.head_dim / 2; pair += kAttentionThreads) {
    Float2 sums[kHeads] = {};
    sum_values<kType, kHeads>(work, pair, sums);
    for (uint32_t h = 0; h < count; ++h) {
      const size_t partial = first_partial + h * args.splits_max;
      reinterpret_cast<Float2*>(args.partial_outs + partial * layout.head_dim)[pair] = sums[h];
    }
  }
}

}  // namespace spillway::kernels::cuda
