// The plan of a step's attention on a GPU: every split of every row is computed once, by the row or
// by a tile whose pages are the row's.
#include "kernels/cuda/attention_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace spillway::kernels::cuda {
namespace {

struct Sequence {
  std::vector<PageId> pages;
  uint32_t position = 0;
  uint32_t rows = 0;
  uint32_t first_row = 0;
};

AttentionTilePlan plan_of(const KvGroupLayout& layout, uint32_t heads,
                          const std::vector<Sequence>& sequences, const TileLimits& limits) {
  std::vector<TiledSequence> parts;
  for (const Sequence& s : sequences) {
    parts.push_back({s.pages, s.pages.data(), s.position, s.rows, s.first_row});
  }
  return plan_attention_tiles(layout, heads, parts, limits);
}

// Checks a plan against all that it must hold.
class PlanCheck {
 public:
  PlanCheck(const KvGroupLayout& layout, uint32_t heads, const std::vector<Sequence>& sequences,
            const AttentionTilePlan& plan)
      : layout_(layout), heads_(heads), sequences_(sequences), plan_(plan) {}

  void run() {
    expect_rows();
    for (const DeviceTile& tile : plan_.tiles) expect_tile(tile);
    for (uint32_t query = 0; query < plan_.queries.size(); ++query) expect_splits(query);
    EXPECT_LE(plan_.whole_queries, plan_.tiled_queries);
    EXPECT_LE(plan_.tiled_queries, plan_.queries.size());
  }

 private:
  bool is_whole(uint32_t query) const {
    return query >= plan_.queries.size() - plan_.whole_queries;
  }
  bool is_tiled(uint32_t query) const {
    return query >= plan_.queries.size() - plan_.tiled_queries;
  }
  const Sequence& sequence_of(uint32_t query) const {
    const uint32_t row = plan_.queries[query].row;
    return *std::find_if(sequences_.begin(), sequences_.end(), [row](const Sequence& s) {
      return row >= s.first_row && row < s.first_row + s.rows;
    });
  }

  void expect_rows() {
    std::vector<uint32_t> rows, expected;
    for (const DeviceQuery& query : plan_.queries) rows.push_back(query.row);
    for (const Sequence& s : sequences_) {
      for (uint32_t i = 0; i < s.rows; ++i) expected.push_back(s.first_row + i);
    }
    std::sort(rows.begin(), rows.end());
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(rows, expected);
    for (uint32_t query = 0; query < plan_.queries.size(); ++query) {
      const Sequence& s = sequence_of(query);
      EXPECT_EQ(plan_.queries[query].table, s.pages.data());
      EXPECT_EQ(plan_.queries[query].position, s.position + plan_.queries[query].row - s.first_row);
      const uint32_t splits = splits_seen(layout_, plan_.queries[query].position);
      if (!is_whole(query)) EXPECT_LE(splits, plan_.splits_max);
    }
  }

  void expect_tile(const DeviceTile& tile) {
    ASSERT_TRUE(tiles_take(layout_));
    ASSERT_GE(tile.query_count, 1u);
    ASSERT_LE(tile.query_count, tile_queries(layout_, heads_));
    ASSERT_GE(tile.splits, 1u);
    uint32_t least = 0xffffffff, most = 0;
    for (uint32_t i = 0; i < tile.query_count; ++i) {
      const DeviceQuery& query = plan_.queries[tile.first_query + i];
      least = std::min(least, query.position);
      most = std::max(most, query.position);
      EXPECT_EQ(tile.whole, is_whole(tile.first_query + i));
    }
    EXPECT_EQ(tile.position_min, least);
    EXPECT_EQ(tile.position_max, most);
    // The kernel takes the tokens that any of the queries sees, so there must be some.
    const uint32_t begin =
        std::max(tile.first_split * kAttentionSplitTokens, first_token_seen(layout_, least));
    EXPECT_LT(begin, std::min((tile.first_split + tile.splits) * kAttentionSplitTokens, most + 1));
  }

  // By how many tiles; their pages are those of the query.
  uint32_t tiles_with(uint32_t query, uint32_t split) {
    uint32_t count = 0;
    for (const DeviceTile& tile : plan_.tiles) {
      if (query < tile.first_query || query >= tile.first_query + tile.query_count) continue;
      if (split < tile.first_split || split >= tile.first_split + tile.splits) continue;
      ++count;
      const std::vector<PageId>& pages = sequence_of(query).pages;
      const std::vector<PageId>& read = sequence_of(tile.first_query).pages;
      const uint32_t position = plan_.queries[query].position;
      for (uint32_t t = split * kAttentionSplitTokens;
           t < (split + 1) * kAttentionSplitTokens && t <= position; ++t) {
        if (t < first_token_seen(layout_, position)) continue;
        EXPECT_EQ(pages[t / layout_.page_tokens], read[t / layout_.page_tokens]);
      }
    }
    return count;
  }

  void expect_splits(uint32_t query) {
    const DeviceQuery& at = plan_.queries[query];
    const uint32_t first = first_token_seen(layout_, at.position) / kAttentionSplitTokens;
    for (uint32_t split = first; split <= at.position / kAttentionSplitTokens; ++split) {
      const bool own = !is_tiled(query) && split >= at.first_own_split;
      EXPECT_EQ(tiles_with(query, split), own ? 0u : 1u) << "query " << query << " split " << split;
    }
  }

  const KvGroupLayout& layout_;
  uint32_t heads_;
  const std::vector<Sequence>& sequences_;
  const AttentionTilePlan& plan_;
};

std::vector<PageId> fresh_pages(uint32_t count, uint32_t& next) {
  std::vector<PageId> pages;
  for (uint32_t i = 0; i < count; ++i) pages.push_back(PageId{next++});
  return pages;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  uint32_t below(uint32_t end) { return static_cast<uint32_t>(engine_() % end); }
  bool one_in(uint32_t count) { return below(count) == 0; }

 private:
  std::mt19937 engine_;
};

// Sequences of which many begin as one before does.
std::vector<Sequence> random_sequences(const KvGroupLayout& layout, Random& random) {
  std::vector<Sequence> out;
  uint32_t row = 0, next_page = 0;
  for (uint32_t count = 1 + random.below(100); count > 0; --count) {
    Sequence s;
    if (!out.empty() && !random.one_in(4)) {
      s.pages = out[random.below(static_cast<uint32_t>(out.size()))].pages;
      s.pages.resize(random.below(static_cast<uint32_t>(s.pages.size()) + 1));
    }
    const uint32_t pages_max = 2000 / layout.page_tokens + 1;
    const auto more = fresh_pages(1 + random.below(pages_max), next_page);
    s.pages.insert(s.pages.end(), more.begin(), more.end());
    const uint32_t tokens = static_cast<uint32_t>(s.pages.size()) * layout.page_tokens -
                            random.below(layout.page_tokens);
    s.rows = std::min(tokens, random.one_in(10) ? random.below(300) : random.below(3));
    s.position = tokens - s.rows;
    s.first_row = row;
    row += s.rows + random.below(2);
    out.push_back(s);
  }
  return out;
}

TEST(AttentionTilesTest, every_split_of_every_row_is_computed_once) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  uint64_t shared = 0, whole = 0, cut = 0;
  for (int run = 0; run < 60; ++run) {
    constexpr uint32_t kPageTokens[] = {16, 48, 64, 1024};
    constexpr uint32_t kDims[] = {64, 128, 136, 256, 264, 10};  // the last two make no tiles
    const KvGroupLayout layout{.layers = 1,
                               .kv_heads = 1 + random.below(8),
                               .head_dim = kDims[random.below(random.one_in(10) ? 6 : 4)],
                               .page_tokens = kPageTokens[random.below(4)],
                               .window = random.one_in(4) ? 1 + random.below(1500) : 0};
    const uint32_t group = random.one_in(10) ? 71 : 1 + random.below(16);
    const auto sequences = random_sequences(layout, random);
    const TileLimits limits{.blocks_wanted = random.below(400),
                            .partials_max = random.one_in(3) ? 0 : uint64_t{1} << 40};
    const AttentionTilePlan plan = plan_of(layout, layout.kv_heads * group, sequences, limits);
    PlanCheck(layout, layout.kv_heads * group, sequences, plan).run();
    if (HasFailure()) return;
    for (const DeviceTile& tile : plan.tiles) {
      const bool is_prompt = tile.first_query >= plan.queries.size() - plan.tiled_queries;
      ++(tile.whole ? whole : (is_prompt ? cut : shared));
    }
  }
  EXPECT_GT(shared, 0u);
  EXPECT_GT(whole, 0u);
  EXPECT_GT(cut, 0u);
}

constexpr KvGroupLayout kLayout{.layers = 1, .kv_heads = 8, .head_dim = 128, .page_tokens = 16};

// `count` decoding rows over `shared` pages, with `own` pages each behind them.
std::vector<Sequence> branches(uint32_t count, uint32_t shared, uint32_t own) {
  uint32_t next = 0;
  const auto prefix = fresh_pages(shared, next);
  std::vector<Sequence> out;
  for (uint32_t i = 0; i < count; ++i) {
    Sequence s{.pages = prefix, .rows = 1, .first_row = i};
    const auto more = fresh_pages(own, next);
    s.pages.insert(s.pages.end(), more.begin(), more.end());
    s.position = static_cast<uint32_t>(s.pages.size()) * kLayout.page_tokens - 1;
    out.push_back(s);
  }
  return out;
}

TEST(AttentionTilesTest, many_rows_over_common_pages_share_their_whole_splits) {
  const AttentionTilePlan plan = plan_of(kLayout, 32, branches(64, 100, 3), {});
  ASSERT_EQ(plan.tiles.size(), 3u * 4);  // 1,600 tokens: 3 splits; 16 queries of 4 heads a tile
  for (const DeviceTile& tile : plan.tiles) EXPECT_EQ(tile.query_count, 16u);
  for (const DeviceQuery& query : plan.queries) EXPECT_EQ(query.first_own_split, 3u);
  EXPECT_EQ(plan.tiled_queries, 0u);
}

TEST(AttentionTilesTest, rows_too_few_for_half_a_tile_attend_alone) {
  EXPECT_TRUE(plan_of(kLayout, 32, branches(7, 100, 3), {}).tiles.empty());
  EXPECT_FALSE(plan_of(kLayout, 32, branches(8, 100, 3), {}).tiles.empty());
  EXPECT_TRUE(plan_of(kLayout, 32, branches(64, 31, 3), {}).tiles.empty());  // less than a split
}

TEST(AttentionTilesTest, a_prompt_is_cut_by_splits_where_its_tiles_would_not_fill_the_gpu) {
  uint32_t next = 0;
  const std::vector<Sequence> prompt = {
      {.pages = fresh_pages(256, next), .position = 4096 - 160, .rows = 160, .first_row = 0}};
  const uint64_t room = 160 * 8;
  const AttentionTilePlan cut = plan_of(kLayout, 32, prompt, {.partials_max = room});
  EXPECT_EQ(cut.tiles.size(), 10u * 8);
  EXPECT_EQ(cut.whole_queries, 0u);
  EXPECT_EQ(cut.splits_max, 8u);
  const AttentionTilePlan no_room = plan_of(kLayout, 32, prompt, {.partials_max = room - 1});
  EXPECT_EQ(no_room.tiles.size(), 10u);
  EXPECT_EQ(no_room.whole_queries, 160u);
  const AttentionTilePlan enough =
      plan_of(kLayout, 32, prompt, {.blocks_wanted = 80, .partials_max = room});
  EXPECT_EQ(enough.whole_queries, 160u);
}

TEST(AttentionTilesTest, the_longest_tiles_come_first) {
  uint32_t next = 0;
  const std::vector<Sequence> prompt = {
      {.pages = fresh_pages(64, next), .position = 0, .rows = 1000, .first_row = 0}};
  const AttentionTilePlan plan = plan_of(kLayout, 32, prompt, {.blocks_wanted = 1});
  ASSERT_EQ(plan.tiles.size(), 63u);
  EXPECT_EQ(plan.tiles.front().position_max, 999u);
  EXPECT_EQ(plan.tiles.back().position_min / kAttentionBlockTokens, 0u);
}

TEST(AttentionTilesTest, no_rows_make_nothing) {
  const AttentionTilePlan plan = plan_of(kLayout, 32, {}, {});
  EXPECT_TRUE(plan.queries.empty());
  EXPECT_TRUE(plan.tiles.empty());
}

}  // namespace
}  // namespace spillway::kernels::cuda
