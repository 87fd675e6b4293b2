// Paged attention of one layer of a model with groups of queries, over pages of bf16 that lie
// scattered: decode of sequences that share nothing, and prefill of one prompt.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "bench/gpu/bench_run.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/operators.h"

namespace spillway::bench {
namespace {

using kernels::DeviceMemory;
using kernels::PageId;
using kernels::cuda::AttentionArgs;

// One layer's pages, and what rows that attend to them need.
struct Attention {
  kernels::KvGroupLayout layout;
  DeviceMemory pages, tables, q, out, sums, outs;
  std::vector<PageId> table;  // of all sequences, one after the other

  const PageId* table_on_device(size_t at) const {
    return reinterpret_cast<const PageId*>(tables.data) + at;
  }
};

std::string tokens_text(uint32_t tokens) {
  return tokens % 1024 == 0 ? std::to_string(tokens / 1024) + "k" : std::to_string(tokens);
}

Result<> take(Result<DeviceMemory> from, DeviceMemory& to) {
  if (!from) return from.error();
  to = std::move(*from);
  return Result<>();
}

Result<Attention> make_attention(BenchRun& run, uint64_t page_count, uint32_t rows,
                                 uint64_t partials) {
  const BenchSizes& sizes = run.sizes();
  Attention out;
  out.layout = {.layers = 1,
                .kv_heads = sizes.kv_heads,
                .head_dim = sizes.head_dim,
                .page_tokens = 16,
                .type = kernels::KvType::kBf16};
  out.table.resize(page_count);
  for (uint32_t i = 0; i < page_count; ++i) out.table[i] = PageId{i};
  std::shuffle(out.table.begin(), out.table.end(), std::mt19937(11));
  const size_t row_bytes = size_t{rows} * sizes.heads * sizes.head_dim * sizeof(float);
  auto done = take(run.random_memory(page_count * out.layout.page_bytes()), out.pages);
  if (done) done = take(run.upload(out.table), out.tables);
  if (done) done = take(run.random_memory(row_bytes), out.q);
  if (done) done = take(run.device().allocate(row_bytes), out.out);
  if (done) done = take(run.device().allocate((2 * partials + 1) * sizeof(float)), out.sums);
  if (done) {
    done = take(run.device().allocate((partials * sizes.head_dim + 1) * sizeof(float)), out.outs);
  }
  if (!done) return done.error();
  return out;
}

AttentionArgs args_of(const BenchRun& run, const Attention& attention) {
  const uint32_t heads = run.sizes().heads;
  const size_t stride = size_t{heads} * attention.layout.head_dim;
  return {.kv = {attention.layout, attention.pages.data},
          .scaling = {.query = 0.1f},
          .heads = heads,
          .q = reinterpret_cast<const float*>(attention.q.data),
          .out = reinterpret_cast<float*>(attention.out.data),
          .q_stride = stride,
          .out_stride = stride,
          .partial_sums = reinterpret_cast<float*>(attention.sums.data),
          .partial_outs = reinterpret_cast<float*>(attention.outs.data)};
}

Result<> measure_decode(BenchRun& run, uint32_t tokens) {
  const BenchSizes& sizes = run.sizes();
  const auto sequences = static_cast<uint32_t>(sizes.decode_tokens_together / tokens);
  const uint32_t pages_each = (tokens + 15) / 16;
  const uint32_t splits =
      (tokens + kernels::kAttentionSplitTokens - 1) / kernels::kAttentionSplitTokens;
  const auto attention = make_attention(run, uint64_t{pages_each} * sequences, sequences,
                                        uint64_t{sequences} * sizes.heads * splits);
  if (!attention) return attention.error();
  std::vector<kernels::cuda::DeviceQuery> queries;
  for (uint32_t i = 0; i < sequences; ++i) {
    queries.push_back({attention->table_on_device(size_t{i} * pages_each), tokens - 1, i});
  }
  const auto queries_there = run.upload(queries);
  if (!queries_there) return queries_there.error();
  AttentionArgs args = args_of(run, *attention);
  args.queries = reinterpret_cast<const kernels::cuda::DeviceQuery*>(queries_there->data);
  args.query_count = sequences;
  args.splits_max = splits;
  const Figure figure{
      .name = "decode_attention",
      .what = tokens_text(tokens) + " x " + std::to_string(sequences),
      .bytes = 4.0 * sequences * tokens * sizes.kv_heads * sizes.head_dim,  // K and V of bf16
      .in_device = true};
  return run.measure(figure, run.device().compute(),
                     [&] { run.enqueue("attention", kernels::cuda::attention, args); });
}

Result<> measure_prefill(BenchRun& run, uint32_t rows) {
  const BenchSizes& sizes = run.sizes();
  const uint32_t pages = (rows + 15) / 16;
  // Room for the sums of all splits, whether the plan cuts by splits or not.
  const uint64_t partials =
      uint64_t{rows} * sizes.heads * (rows / kernels::kAttentionSplitTokens + 1);
  const auto attention = make_attention(run, pages, rows, partials);
  if (!attention) return attention.error();
  const kernels::cuda::TiledSequence sequence{.pages = attention->table,
                                              .table = attention->table_on_device(0),
                                              .position = 0,
                                              .rows = rows,
                                              .first_row = 0};
  const auto plan = kernels::cuda::plan_attention_tiles(
      attention->layout, sizes.heads, {&sequence, 1}, {.partials_max = partials / sizes.heads});
  const auto queries = run.upload(plan.queries);
  if (!queries) return queries.error();
  const auto tiles = run.upload(plan.tiles);
  if (!tiles) return tiles.error();
  kernels::cuda::TiledAttentionArgs args{.rows = args_of(run, *attention)};
  args.rows.queries = reinterpret_cast<const kernels::cuda::DeviceQuery*>(queries->data);
  args.rows.query_count = static_cast<uint32_t>(plan.queries.size());
  args.rows.splits_max = plan.splits_max;
  args.tiles = reinterpret_cast<const kernels::cuda::DeviceTile*>(tiles->data);
  args.tile_count = static_cast<uint32_t>(plan.tiles.size());
  args.tiled_queries = plan.tiled_queries;
  args.whole_queries = plan.whole_queries;
  const double pairs = 0.5 * rows * (rows + 1.0);
  const Figure figure{.name = "prefill_attention",
                      .what = tokens_text(rows),
                      .operations = 4.0 * sizes.heads * sizes.head_dim * pairs,
                      .arithmetic = "f32",
                      .tokens = rows};
  return run.measure(figure, run.device().compute(),
                     [&] { run.enqueue("tiled_attention", kernels::cuda::tiled_attention, args); });
}

}  // namespace

Result<> measure_decode_attention(BenchRun& run) {
  for (const uint32_t tokens : run.sizes().decode_tokens) {
    if (const auto done = measure_decode(run, tokens); !done) return done;
  }
  return Result<>();
}

Result<> measure_prefill_attention(BenchRun& run) {
  for (const uint32_t rows : run.sizes().prefill_rows) {
    if (const auto done = measure_prefill(run, rows); !done) return done;
  }
  return Result<>();
}

}  // namespace spillway::bench
