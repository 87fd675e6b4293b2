// How a tile's attention is divided where the scratch is small: every row once, and no more sums
// and tiles than there is room for.
#include "model/gpu_attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace spillway::model {
namespace {

using kernels::KvGroupLayout;
using kernels::PageId;
using kernels::cuda::AttentionTilePlan;
using kernels::cuda::TiledSequence;

constexpr uint32_t kContext = 4096;

struct Sequences {
  std::vector<std::vector<PageId>> pages;
  std::vector<TiledSequence> parts;
  uint32_t rows = 0;
};

// Many begin alike; some are prompts.
Sequences random_sequences(std::mt19937& random, const KvGroupLayout& layout) {
  Sequences out;
  const uint32_t count = 1 + random() % 24;
  const uint32_t shared_pages = random() % (kContext / layout.page_tokens);
  uint32_t next = 1'000'000;
  for (uint32_t s = 0; s < count; ++s) {
    auto& pages = out.pages.emplace_back();
    for (uint32_t i = 0; i < kContext / layout.page_tokens; ++i) {
      pages.push_back(PageId{i < shared_pages ? i : next++});
    }
  }
  for (uint32_t s = 0; s < count; ++s) {
    const uint32_t rows = random() % 4 != 0 ? 1 : 1 + random() % 80;
    const auto position = static_cast<uint32_t>(random() % (kContext - rows));
    out.parts.push_back({.pages = out.pages[s],
                         .table = out.pages[s].data(),
                         .position = position,
                         .rows = rows,
                         .first_row = out.rows});
    out.rows += rows;
  }
  return out;
}

TEST(GpuAttentionPlan, every_row_attends_once_within_the_room_that_there_is) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  size_t passes = 0, tiles_in_all = 0;
  for (int round = 0; round < 300; ++round) {
    const uint32_t heads_a_group = 1u << random() % 7;
    const uint32_t kv_heads = 1 + random() % 2;
    const KvGroupLayout layout{.layers = 1,
                               .kv_heads = kv_heads,
                               .head_dim = random() % 5 == 0 ? 22u : 64u,
                               .page_tokens = 16,
                               .window = random() % 3 == 0 ? 700u : 0};
    const uint32_t heads = kv_heads * heads_a_group;
    const Sequences sequences = random_sequences(random, layout);
    const uint64_t partials_max = kContext / 512 + 1 + random() % 100;
    const auto plans = plan_attention(
        layout, heads, sequences.parts,
        {.blocks_wanted = 1 + static_cast<uint32_t>(random() % 264), .partials_max = partials_max});
    std::vector<uint32_t> rows;
    size_t tiles = 0;
    for (const AttentionTilePlan& plan : plans) {
      for (const auto& query : plan.queries) rows.push_back(query.row);
      const uint64_t with_sums = plan.queries.size() - plan.whole_queries;
      EXPECT_LE(with_sums * plan.splits_max, partials_max);
      tiles += plan.tiles.size();
    }
    std::sort(rows.begin(), rows.end());
    ASSERT_EQ(rows.size(), sequences.rows);
    for (uint32_t row = 0; row < rows.size(); ++row) ASSERT_EQ(rows[row], row);
    EXPECT_LE(tiles, attention_tiles_max(layout, heads, sequences.rows, kContext));
    passes += plans.size();
    tiles_in_all += tiles;
  }
  // About 1,400 and 9,700, at the least 900 and 7,000 in 400 runs; undivided, 300 parts.
  EXPECT_GT(passes, 400u);
  EXPECT_GT(tiles_in_all, 600u);
}

TEST(GpuAttentionPlan, rows_go_together_where_there_is_room) {
  std::mt19937 random(1);
  const KvGroupLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 64, .page_tokens = 16};
  const Sequences sequences = random_sequences(random, layout);
  EXPECT_EQ(plan_attention(layout, 4, sequences.parts, {.partials_max = 1 << 20}).size(), 1u);
  EXPECT_TRUE(plan_attention(layout, 4, {}, {.partials_max = 1 << 20}).empty());
}

}  // namespace
}  // namespace spillway::model
