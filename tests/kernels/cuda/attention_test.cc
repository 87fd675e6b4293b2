// KV written into pages and attended to by a GPU's kernels: the bytes and bits of their twins,
// pages scattered, and NaN in all that must not be read.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/cuda/kv_on_gpu.h"

namespace spillway::kernels::cuda {
namespace {

TEST(CudaWriteKvTest, pages_hold_the_bytes_that_the_cpu_writes) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16}) {
    for (const uint32_t page_tokens : {16u, 32u}) {
      for (const uint32_t tokens : {1u, page_tokens - 1, page_tokens, page_tokens + 1}) {
        SCOPED_TRACE(testing::Message() << page_tokens << "-token pages, " << tokens << " tokens");
        AttentionCase setup;
        setup.layout = {
            .layers = 2, .kv_heads = 3, .head_dim = 10, .page_tokens = page_tokens, .type = type};
        setup.shape.heads = 3;
        TokenRows rows(setup, tokens + 3, tokens);
        for (size_t i = 0; i < rows.k.size(); i += 7) rows.k[i] *= 1e6f;   // past f16's range
        for (size_t i = 0; i < rows.v.size(); i += 5) rows.v[i] *= 1e-6f;  // subnormal in f16
        PagePoolFixture pool(setup.layout, 4, 1), expected(setup.layout, 4, 1);
        PagedSequence sequence(setup, pool), twin(setup, expected);
        for (const uint32_t count : {tokens, 3u}) {
          const uint32_t first = sequence.position();
          const AttentionSequence part = sequence.next(count, 0), same = twin.next(count, 0);
          const AttentionSequence nothing = {.kv = part.kv, .position = part.position, .rows = 0};
          write_on_gpu(setup, pool.data(), 1, {nothing, part}, rows, first);
          run_team(1, [&](Team& team) {
            kernels::write_kv(CpuLevel::kBaseline, team, {&same, 1}, 1,
                              {rows.k.data() + first * rows.kv_stride,
                               rows.v.data() + first * rows.kv_stride, rows.kv_stride});
          });
        }
        ASSERT_EQ(pool.bytes(), expected.bytes());
      }
    }
  }
}

// Sequences of these lengths decode their last token together; each equals its twin.
void expect_decode_equals_twin(const AttentionCase& setup, const std::vector<uint32_t>& lengths) {
  const KvGroupLayout& layout = setup.layout;
  const uint32_t layer = layout.layers - 1;
  uint32_t pages = 1, longest = 0, splits_max = 0;
  for (const uint32_t length : lengths) {
    pages += length / layout.page_tokens + 1;
    longest = std::max(longest, length);
    splits_max = std::max(splits_max, splits_seen(layout, length - 1));
  }
  const TokenRows rows(setup, longest, longest);
  PagePoolFixture pool(layout, pages, longest);
  std::vector<std::unique_ptr<PagedSequence>> sequences;
  std::vector<DeviceQuery> queries;
  for (const uint32_t length : lengths) {
    PagedSequence& sequence = *sequences.emplace_back(new PagedSequence(setup, pool));
    if (length > 1)
      write_on_gpu(setup, pool.data(), layer, {sequence.next(length - 1, 0)}, rows, 0);
    write_on_gpu(setup, pool.data(), layer, {sequence.next(1, 0)}, rows, length - 1);
    queries.push_back({sequence.kv().table.data(), length - 1, length - 1});
  }
  const auto count = static_cast<uint32_t>(queries.size());
  const size_t partials = size_t{count} * setup.shape.heads * splits_max;
  std::vector<float> sums(2 * partials, kPoison), outs(partials * layout.head_dim, kPoison);
  std::vector<float> out(rows.q.size(), kPoison);
  GpuUnderTest gpu;
  gpu.run(attention, {.kv = {layout, pool.data()},
                      .scaling = attention_scaling(setup.shape),
                      .heads = setup.shape.heads,
                      .layer = layer,
                      .queries = queries.data(),
                      .query_count = count,
                      .splits_max = splits_max,
                      .q = rows.q.data(),
                      .out = out.data(),
                      .q_stride = rows.q_stride,
                      .out_stride = rows.q_stride,
                      .partial_sums = sums.data(),
                      .partial_outs = outs.data()});
  for (uint32_t s = 0; s < count; ++s) {
    for (uint32_t head = 0; head < setup.shape.heads; ++head) {
      const size_t at = (lengths[s] - 1) * rows.q_stride + head * layout.head_dim;
      std::vector<float> expected(layout.head_dim);
      reference::attend(setup.shape, sequences[s]->kv(),
                        {.layer = layer, .head = head, .position = lengths[s] - 1},
                        rows.q.data() + at, expected.data(), true);
      ASSERT_EQ(std::memcmp(out.data() + at, expected.data(), expected.size() * sizeof(float)), 0)
          << lengths[s] << " tokens, head " << head << ": " << out[at] << " and " << expected[0];
    }
  }
}

struct DecodeCase {
  KvType type;
  uint32_t page_tokens, head_dim, kv_heads, group, window;
  float soft_cap;
};

class CudaAttentionTest : public testing::TestWithParam<DecodeCase> {};

TEST_P(CudaAttentionTest, decoding_tokens_equal_their_twin_at_page_block_split_and_window_edges) {
  const DecodeCase& decode = GetParam();
  AttentionCase setup;
  setup.layout = {.layers = 2,
                  .kv_heads = decode.kv_heads,
                  .head_dim = decode.head_dim,
                  .page_tokens = decode.page_tokens,
                  .window = decode.window,
                  .type = decode.type};
  setup.shape = {.heads = decode.kv_heads * decode.group,
                 .scale = 1.0f / std::sqrt(static_cast<float>(decode.head_dim)),
                 .soft_cap = decode.soft_cap};
  expect_decode_equals_twin(
      setup, {1, decode.page_tokens - 1, decode.page_tokens, decode.page_tokens + 1, 65});
  expect_decode_equals_twin(setup, {512, 3});
  expect_decode_equals_twin(setup, {1030, 513});
}

// Odd numbers of heads and groups, heads of any even size, every type, windows, a soft cap.
INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttentionTest,
                         testing::Values(DecodeCase{KvType::kF16, 16, 64, 1, 1, 0, 0},
                                         DecodeCase{KvType::kBf16, 16, 10, 2, 2, 0, 20},
                                         DecodeCase{KvType::kF32, 32, 2, 3, 3, 0, 0},
                                         DecodeCase{KvType::kF16, 64, 40, 1, 7, 17, 0},
                                         DecodeCase{KvType::kBf16, 16, 16, 1, 9, 600, 0},
                                         DecodeCase{KvType::kF16, 16, 16, 1, 4, 512, 30}));

TEST(CudaAttentionTest, no_queries_do_nothing) {
  GpuUnderTest gpu;
  AttentionArgs args;
  args.kv.layout = {.layers = 1, .kv_heads = 1, .head_dim = 16};
  args.heads = 1;
  gpu.run(attention, args);
}

}  // namespace
}  // namespace spillway::kernels::cuda
