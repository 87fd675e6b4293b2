// The launches of attention: tiles of queries that share pages; for the other queries each split
// by itself; then the merge in ascending order of what was not whole. One order for all of it
// (attention.h), so that a row's bits say nothing of how it was computed: prefill, decode and
// shared prefixes agree, and agree with the CPU.
//
// That is why all of it multiplies in f32. Tensor cores sum the products of a step in an order
// that PTX leaves open and that differs from one generation to the next: they would take a tree of
// their own, in decode too, that no CPU has, and pages computed on the one could not be gone on
// with on the other.
//
// Sketch of the merge, H200: 64 streams of 32 heads at 8k (16 splits of 128 floats) read 17 MB, 3.5
// us beside 450 of the splits.
#pragma once

#include "kernels/cuda/attention_split.cuh"
#include "kernels/cuda/attention_tile.cuh"

namespace spillway::kernels::cuda {

inline constexpr uint32_t kMergeThreads = 64;

// One head of one query a block.
SPILLWAY_KERNEL void attention_merge_kernel(AttentionArgs args) {
  const uint32_t dims = args.kv.layout.head_dim;
  const uint32_t head = block_index().x;
  const DeviceQuery query = args.queries[block_index().y];
  const uint32_t splits = splits_seen(args.kv.layout, query.position);
  const size_t first = (size_t{block_index().y} * args.heads + head) * args.splits_max;
  float* out = args.out + query.row * args.out_stride + head * dims;
  for (uint32_t d = thread_index(); d < dims; d += kMergeThreads) {
    float maximum = -3.402823466e38f;  // the lowest
    float sum = 0;
    float value = 0;
    for (uint32_t s = 0; s < splits; ++s) {
      const float part_max = args.partial_sums[2 * (first + s)];
      const float part_sum = args.partial_sums[2 * (first + s) + 1];
      const float greater = maximum < part_max ? part_max : maximum;
      const float old_factor = power_of_2(maximum - greater);
      const float new_factor = power_of_2(part_max - greater);
      maximum = greater;
      sum = fused(part_sum, new_factor, sum * old_factor);
      value = fused(args.partial_outs[(first + s) * dims + d], new_factor, value * old_factor);
    }
    out[d] = value * (1.0f / sum) + 0.0f;  // a negative zero becomes positive, as in attention.h
  }
}

template <uint32_t kHeads, class Launcher>
auto attention_splits(Launcher& launch, const AttentionArgs& args) {
  const KvGroupLayout& layout = args.kv.layout;
  const uint32_t group = args.heads / layout.kv_heads;
  const LaunchShape shape{
      .grid = {args.splits_max, layout.kv_heads * ((group + kHeads - 1) / kHeads),
               args.query_count},
      .threads = kAttentionThreads,
      .shared_bytes = kHeads * layout.head_dim * sizeof(float)};
  return with_kv_type(layout.type, [&](auto tag) {
    return launch(attention_split_kernel<decltype(tag)::value, kHeads>, shape, args);
  });
}

template <class Launcher>
auto own_splits(Launcher& launch, const AttentionArgs& args) {
  const uint32_t group = args.heads / args.kv.layout.kv_heads;
  if (group == 1) return attention_splits<1>(launch, args);
  if (group == 2) return attention_splits<2>(launch, args);
  if (group <= 4) return attention_splits<4>(launch, args);
  return attention_splits<8>(launch, args);
}

template <class Launcher>
auto merge_splits(Launcher& launch, const AttentionArgs& args) {
  return launch(attention_merge_kernel,
                LaunchShape{.grid = {args.heads, args.query_count, 1}, .threads = kMergeThreads},
                args);
}

// Enqueues both. REQUIRES: scratch for query_count * heads * splits_max splits; head_dim even.
template <class Launcher>
auto attention(Launcher& launch, const AttentionArgs& args) {
  own_splits(launch, args);
  return merge_splits(launch, args);
}

// The same with tiles first. REQUIRES: scratch for all but the whole queries.
template <class Launcher>
auto tiled_attention(Launcher& launch, const TiledAttentionArgs& args) {
  attention_tiles(launch, args);
  AttentionArgs part = args.rows;
  part.query_count = args.rows.query_count - args.tiled_queries;
  own_splits(launch, part);
  part.query_count = args.rows.query_count - args.whole_queries;
  return merge_splits(launch, part);
}

}  // namespace spillway::kernels::cuda
