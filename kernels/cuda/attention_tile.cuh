// Paged attention for queries that share pages: a chunk of a prompt, or many sequences over the
// pages that they begin with. The one tree of attention.h, so the bits of attention_split.cuh.
//
// A block of threads has a tile of up to 64 rows (query, head of one KV head's group; 32 where
// heads are longer than 128) and walks over blocks of 64 tokens, ascending, by eight stages: four
// with a quarter of the dimensions of K each, four with V of 16 tokens each, two stages ahead of
// their use. A thread has four rows: with the 15 (or 31) others that have them too it shares out
// the tokens of the scores and the dimensions of the sums, each one FMA chain in registers. Where a
// row does not see a token of V, the token is left out, not multiplied by zero: what is in it
// cannot matter.
//
// At the end of a split the sums are merged into `out`, which holds the running totals, or go to
// the scratch that attention_merge_kernel reads.
//
// Sketch, H200 (59 f32 TFLOP/s at 1.75 GHz), head_dim 128, f16: a thread issues 16 FMAs to 22
// instructions for a dimension of scores, 32 to 43 for a token of sums: at most 43 TFLOP/s. It
// takes 128 registers (64 sums and scores), 2 blocks an SM with 60 KB of shared memory each; a
// split of 64 rows is 17 MFLOP, 52 us beside another. Prefill of 8,192 tokens with 32 heads is 550
// GFLOP a layer, 13 ms; K and V come out of L2 at 260 KB a tile and split, 0.7 TB/s in all. Decode
// of 64 streams in groups of 4 over a shared prefix: 4 tiles a split and KV head, 26 us an SM each,
// where single queries take 64 times 7 us.
#pragma once

#include "kernels/cuda/attention_tile_split.cuh"

namespace spillway::kernels::cuda {

template <KvType kType, uint32_t kDimsMax>
SPILLWAY_KERNEL void SPILLWAY_THREADS(kTileThreads)
    attention_tile_kernel(TiledAttentionArgs tiled) {
  const AttentionArgs& args = tiled.rows;
  using Shape = TileShape<kType, kDimsMax>;
  using Stored = typename Shape::Stored;
  SPILLWAY_SHARED(float, p, kAttentionBlockTokens * Shape::kRows);
  SPILLWAY_SHARED(uint32_t, positions, Shape::kRows);
  SPILLWAY_SHARED(Stored, stages, Shape::kStages * Shape::kStageElements);
  const KvGroupLayout& layout = args.kv.layout;
  const Shared<float> q = dynamic_shared<float>(0, Shape::kRows * layout.head_dim);
  TileWork<Shape> work{{}, nullptr, 0, 0, 0, 0, 0, 0, 0, q, p, positions, stages};
  plan_tile(args, tiled.tiles[block_index().x], work);
  load_rows(args, work);
  const uint32_t first_block = work.seen_begin / kAttentionBlockTokens;
  const uint32_t blocks = (work.seen_end - 1) / kAttentionBlockTokens - first_block + 1;
  const auto stage_of = [&](uint32_t i) {
    return stages.part(i % Shape::kStages * Shape::kStageElements);
  };
  const auto fetch = [&](uint32_t i) {
    if (i < kTileParts * blocks) {
      const uint32_t start = (first_block + i / kTileParts) * kAttentionBlockTokens;
      fetch_part<kType>(args, work, start, i % kTileParts, stage_of(i));
    }
    commit_copies();  // an empty group past the last, so that as many are pending always
  };
  for (uint32_t i = 0; i < Shape::kAhead; ++i) fetch(i);
  TileSums<Shape> sums{};
  clear_split(sums);
  for (float& maximum : sums.total_maximum) maximum = -3.402823466e38f;  // the lowest
  for (uint32_t i = 0; i < kTileParts * blocks; ++i) {
    wait_copies<Shape::kAhead - 1>();
    sync_threads();
    fetch(i + Shape::kAhead);  // where the stage before this one was read
    const uint32_t block = first_block + i / kTileParts;
    const uint32_t start = block * kAttentionBlockTokens;
    const uint32_t part = i % kTileParts;
    if (part < 4) {
      add_scores<kType>(work, layout.head_dim, part, stage_of(i), sums);
      if (part == 3) finish_scores(args, work, start, sums);
      continue;
    }
    const uint32_t token = (part - 4) * kKvBlockTokens;
    if (work.all_see(start + token, start + token + kKvBlockTokens)) {
      add_values<kType, true>(layout, work, start, token, stage_of(i), sums);
    } else if (work.any_sees(start + token, start + token + kKvBlockTokens)) {
      add_values<kType, false>(layout, work, start, token, stage_of(i), sums);
    }
    const bool ends_split = (block + 1) % kSplitBlocks == 0 || block + 1 == first_block + blocks;
    if (part == kTileParts - 1 && ends_split) finish_split(args, work, block / kSplitBlocks, sums);
  }
}

template <class Launcher>
auto attention_tiles(Launcher& launch, const TiledAttentionArgs& args) {
  const KvGroupLayout& layout = args.rows.kv.layout;
  const uint32_t heads = tile_heads(layout, args.rows.heads);
  const uint32_t chunks = (args.rows.heads / layout.kv_heads + heads - 1) / heads;
  const LaunchShape shape{
      .grid = {args.tile_count, layout.kv_heads * chunks, 1},
      .threads = kTileThreads,
      .shared_bytes = size_t{tile_rows(layout.head_dim)} * layout.head_dim * sizeof(float)};
  return with_kv_type(layout.type, [&](auto tag) {
    constexpr KvType kType = decltype(tag)::value;
    if (layout.head_dim <= 64) return launch(attention_tile_kernel<kType, 64>, shape, args);
    if (layout.head_dim <= 128) return launch(attention_tile_kernel<kType, 128>, shape, args);
    return launch(attention_tile_kernel<kType, 256>, shape, args);
  });
}

}  // namespace spillway::kernels::cuda
