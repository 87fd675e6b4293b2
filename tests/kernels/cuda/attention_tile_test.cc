// Tiles of queries that share pages, on a GPU: prefill, whole and cut by splits, and shared
// prefixes give every row the bits of its twin on the CPU, which decode has too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention_tiles.h"
#include "tests/kernels/cuda/kv_on_gpu.h"

namespace spillway::kernels::cuda {
namespace {

// A sequence whose last `rows` tokens attend in a step.
struct Member {
  std::vector<PageId> table;
  uint32_t position = 0;
  uint32_t rows = 0;
  uint32_t first_row = 0;  // in q and out
};

constexpr TileLimits kWhole{.blocks_wanted = 0};
constexpr TileLimits kCut{.blocks_wanted = 1u << 30, .partials_max = uint64_t{1} << 40};

// One layer group's pages and the sequences of a step over them.
class TileStep {
 public:
  TileStep(const AttentionCase& setup, uint32_t pages, const TokenRows& rows)
      : setup_(setup), rows_(rows), pool_(setup.layout, pages, pages) {}

  PagePoolFixture& pool() { return pool_; }
  uint32_t layer() const { return setup_.layout.layers - 1; }

  // Writes K and V of tokens [first, end) of a table: those of rows `from` and on.
  void write(const std::vector<PageId>& table, uint32_t first, uint32_t end, uint32_t from) {
    const AttentionSequence part{.kv = {&setup_.layout, pool_.data(), table},
                                 .position = first,
                                 .rows = end - first,
                                 .first_row = 0};
    write_on_gpu(setup_, pool_.data(), layer(), {part}, rows_, from);
  }

  void extend(std::vector<PageId>& table, uint32_t tokens) {
    while (table.size() * setup_.layout.page_tokens < tokens) table.push_back(pool_.take());
  }

  // A sequence of its own: `before` tokens, then `count` more that attend.
  void add_prompt(uint32_t before, uint32_t count, uint32_t first_row) {
    Member& member = members_.emplace_back();
    member.position = before;
    member.rows = count;
    member.first_row = first_row;
    extend(member.table, before + count);
    if (before != 0) write(member.table, 0, before, 0);
    write(member.table, before, before + count, before);
    for (uint32_t page = 0; page < behind_window(before); ++page) {
      pool_.give_back(member.table[page]);
      member.table[page] = kNoPage;
    }
  }
  void add(const Member& member) { members_.push_back(member); }

  AttentionTilePlan plan(const TileLimits& limits) const {
    std::vector<TiledSequence> sequences;
    for (const Member& member : members_) {
      sequences.push_back(
          {member.table, member.table.data(), member.position, member.rows, member.first_row});
    }
    return plan_attention_tiles(setup_.layout, setup_.shape.heads, sequences, limits);
  }

  // Queries whose tiles read another's table get one without the pages that these share: whoever
  // read them there would find none.
  void hide_shared_pages(AttentionTilePlan& plan) {
    for (uint32_t i = 0; i < plan.queries.size(); ++i) {
      DeviceQuery& query = plan.queries[i];
      const bool is_read = std::any_of(plan.tiles.begin(), plan.tiles.end(),
                                       [i](const auto& tile) { return tile.first_query == i; });
      if (is_read || query.first_own_split == 0) continue;
      const uint32_t pages = query.position / setup_.layout.page_tokens + 1;
      std::vector<PageId>& table = hidden_.emplace_back(query.table, query.table + pages);
      const uint32_t shared = query.first_own_split * kAttentionSplitTokens;
      std::fill_n(table.begin(), shared / setup_.layout.page_tokens, kNoPage);
      query.table = table.data();
    }
  }

  std::vector<float> run(const AttentionTilePlan& plan) {
    const uint32_t heads = setup_.shape.heads, dims = setup_.layout.head_dim;
    const size_t merged = plan.queries.size() - plan.whole_queries;
    const size_t partials = merged * heads * plan.splits_max;
    std::vector<float> sums(2 * partials, kPoison), outs(partials * dims, kPoison);
    std::vector<float> out(rows_.q.size(), kPoison);
    GpuUnderTest gpu;
    gpu.run(tiled_attention, {.rows = {.kv = {setup_.layout, pool_.data()},
                                       .scaling = attention_scaling(setup_.shape),
                                       .heads = heads,
                                       .layer = layer(),
                                       .queries = plan.queries.data(),
                                       .query_count = static_cast<uint32_t>(plan.queries.size()),
                                       .splits_max = plan.splits_max,
                                       .q = rows_.q.data(),
                                       .out = out.data(),
                                       .q_stride = rows_.q_stride,
                                       .out_stride = rows_.q_stride,
                                       .partial_sums = sums.data(),
                                       .partial_outs = outs.data()},
                              .tiles = plan.tiles.data(),
                              .tile_count = static_cast<uint32_t>(plan.tiles.size()),
                              .tiled_queries = plan.tiled_queries,
                              .whole_queries = plan.whole_queries});
    return out;
  }

  // Every row's result as its twin has it; nothing beside them written.
  void expect_twins(const std::vector<float>& out) {
    const uint32_t heads = setup_.shape.heads, dims = setup_.layout.head_dim;
    std::vector<float> expected(out.size(), kPoison);
    for (const Member& member : members_) {
      for (uint32_t i = 0; i < member.rows; ++i) {
        for (uint32_t head = 0; head < heads; ++head) {
          const size_t at = (member.first_row + i) * rows_.q_stride + size_t{head} * dims;
          reference::attend(setup_.shape, {&setup_.layout, pool_.data(), member.table},
                            {.layer = layer(), .head = head, .position = member.position + i},
                            rows_.q.data() + at, expected.data() + at, true);
        }
      }
    }
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_TRUE(same_value(out[i], expected[i]))
          << "row " << i / rows_.q_stride << " element " << i % rows_.q_stride << ": " << out[i]
          << " and " << expected[i];
    }
  }

 private:
  // Pages that no row from `position` on sees.
  uint32_t behind_window(uint32_t position) const {
    return first_token_seen(setup_.layout, position) / setup_.layout.page_tokens;
  }

  const AttentionCase& setup_;
  const TokenRows& rows_;
  PagePoolFixture pool_;
  std::vector<Member> members_;
  std::vector<std::vector<PageId>> hidden_;
};

struct TileCase {
  KvType type;
  uint32_t page_tokens, head_dim, kv_heads, group, window;
  float soft_cap;
};

AttentionCase setup_of(const TileCase& tile) {
  AttentionCase setup;
  setup.layout = {.layers = 2,
                  .kv_heads = tile.kv_heads,
                  .head_dim = tile.head_dim,
                  .page_tokens = tile.page_tokens,
                  .window = tile.window,
                  .type = tile.type};
  setup.shape = {.heads = tile.kv_heads * tile.group,
                 // So far apart that the reference moves within a split.
                 .scale = 3.0f / std::sqrt(static_cast<float>(tile.head_dim)),
                 .soft_cap = tile.soft_cap};
  return setup;
}

class CudaTileTest : public testing::TestWithParam<TileCase> {};

TEST_P(CudaTileTest, prompts_equal_their_twin_whole_or_cut_in_chunks_over_any_context) {
  const AttentionCase setup = setup_of(GetParam());
  const TokenRows rows(setup, 1140, 5);
  TileStep step(setup, 5 * 1200 / setup.layout.page_tokens, rows);
  step.add_prompt(0, 66, 0);       // more rows than a tile has; edges of pages and blocks
  step.add_prompt(65, 0, 66);      // none
  step.add_prompt(300, 1, 66);     // a decoding row beside
  step.add_prompt(480, 35, 67);    // across the end of a split
  step.add_prompt(1023, 32, 102);  // from a split's last token on
  step.add_prompt(1095, 34, 134);  // a window of 600 begins to leave a split behind
  for (const TileLimits& limits : {kWhole, kCut}) {
    const AttentionTilePlan plan = step.plan(limits);
    EXPECT_GT(plan.tiled_queries, 0u);
    EXPECT_EQ(plan.whole_queries, limits.blocks_wanted == 0 ? plan.tiled_queries : 0u);
    step.expect_twins(step.run(plan));
    if (HasFatalFailure()) return;
  }
}

// Every type and size of tile; odd groups, more heads than a tile has rows; windows; a soft cap.
INSTANTIATE_TEST_SUITE_P(Shapes, CudaTileTest,
                         testing::Values(TileCase{KvType::kF16, 16, 64, 1, 1, 0, 0},
                                         TileCase{KvType::kBf16, 16, 40, 2, 3, 0, 20},
                                         TileCase{KvType::kF32, 32, 8, 1, 7, 0, 0},
                                         TileCase{KvType::kF16, 64, 128, 1, 2, 17, 0},
                                         TileCase{KvType::kBf16, 16, 16, 1, 9, 600, 0},
                                         TileCase{KvType::kF16, 16, 136, 1, 3, 0, 30},
                                         TileCase{KvType::kF32, 16, 256, 1, 2, 0, 0},
                                         TileCase{KvType::kF16, 16, 16, 1, 65, 40, 0}));

TEST(CudaTileTest, what_a_row_does_not_see_cannot_reach_it) {
  const AttentionCase setup = setup_of({KvType::kF16, 16, 16, 1, 2, 0, 0});
  TokenRows rows(setup, 40, 5);
  for (uint32_t i = 0; i < 16; ++i) {  // of the last token
    rows.k[39 * rows.kv_stride + i] = kPoison;
    rows.v[39 * rows.kv_stride + i] = kPoison;
  }
  TileStep step(setup, 8, rows);
  step.add_prompt(0, 40, 0);
  const std::vector<float> out = step.run(step.plan(kWhole));
  step.expect_twins(out);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_FALSE(std::isnan(out[38 * rows.q_stride + i]));
    EXPECT_TRUE(std::isnan(out[39 * rows.q_stride + i]));
  }
}

// Sequences over common pages for `shared` tokens, with tails of their own.
void add_branches(TileStep& step, const std::vector<PageId>& prefix, uint32_t shared,
                  const std::vector<uint32_t>& tails, uint32_t& row) {
  for (const uint32_t tail : tails) {
    Member member{.table = prefix, .position = shared + tail - 1, .rows = 1, .first_row = row++};
    step.extend(member.table, shared + tail);
    step.write(member.table, shared, shared + tail, row);
    step.add(member);
  }
}

struct PrefixCase {
  KvType type;
  uint32_t page_tokens, head_dim, kv_heads, group;
};

class CudaSharedPrefixTest : public testing::TestWithParam<PrefixCase> {};

TEST_P(CudaSharedPrefixTest, sequences_over_common_pages_equal_their_twins) {
  const PrefixCase& prefix_case = GetParam();
  const AttentionCase setup =
      setup_of({prefix_case.type, prefix_case.page_tokens, prefix_case.head_dim,
                prefix_case.kv_heads, prefix_case.group, 0, 0});
  const uint32_t many = tile_queries(setup.layout, setup.shape.heads) + 3;
  const TokenRows rows(setup, 1300, 9);
  TileStep step(setup, 4000 * (many + 10) / 16 / prefix_case.page_tokens + 200, rows);
  uint32_t row = 0;
  std::vector<PageId> prefix;
  step.extend(prefix, 512);
  step.write(prefix, 0, 512, 0);
  std::vector<uint32_t> tails;
  for (uint32_t i = 0; i < many; ++i) tails.push_back(1 + 7 * i % 40);
  add_branches(step, prefix, 512, tails, row);  // part after the first split
  step.extend(prefix, 1024);
  step.write(prefix, 512, 1024, 512);
  add_branches(step, prefix, 1024, tails, row);  // after the second
  step.add_prompt(520, 1, row++);                // shares nothing
  AttentionTilePlan plan = step.plan(kWhole);
  uint32_t splits[2] = {};
  for (const DeviceTile& tile : plan.tiles) splits[tile.first_split] += tile.query_count;
  EXPECT_EQ(splits[0], 2 * many);
  EXPECT_EQ(splits[1], many);
  EXPECT_EQ(plan.tiled_queries, 0u);
  step.hide_shared_pages(plan);
  step.expect_twins(step.run(plan));
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaSharedPrefixTest,
                         testing::Values(PrefixCase{KvType::kF16, 16, 16, 1, 4},
                                         PrefixCase{KvType::kBf16, 64, 8, 2, 8},
                                         PrefixCase{KvType::kF32, 32, 136, 1, 7}));

}  // namespace
}  // namespace spillway::kernels::cuda
