// The cut of a step's attention into units: all work once, none of it too large.
#include "kernels/attention_plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <tuple>

#include "kernels/attention_levels.h"

namespace spillway::kernels {
namespace {

// (sequence, kv head, row, split)
using Piece = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;

struct Step {
  KvGroupLayout layout;
  std::vector<AttentionSequence> sequences;
  uint32_t group_heads = 1;
  uint32_t workers = 1;
};

Step any_step() {
  Step step;
  step.layout = {.layers = 1,
                 .kv_heads = *rc::gen::inRange(1u, 4u),
                 .head_dim = 64,
                 .window = *rc::gen::element(0u, 1u, 512u, 1000u)};
  step.group_heads = *rc::gen::element(1u, 3u, 4u, 100u);
  step.workers = *rc::gen::inRange(1u, 5u);
  const uint32_t count = *rc::gen::inRange(0u, 6u);
  for (uint32_t i = 0; i < count; ++i) {
    step.sequences.push_back({.kv = {},
                              .position = *rc::gen::inRange(0u, 5000u),
                              .rows = *rc::gen::element(0u, 1u, 1u, 33u, 400u)});
  }
  for (AttentionSequence& sequence : step.sequences) sequence.kv.layout = &step.layout;
  return step;
}

RC_GTEST_PROP(AttentionPlanTest, every_row_and_split_is_computed_exactly_once, ()) {
  const Step step = any_step();
  const AttentionCut cut = cut_attention(step.sequences, step.group_heads, step.workers);
  std::map<Piece, int> times;
  for (const AttentionUnit& unit : cut.units) {
    RC_ASSERT(unit.rows <= kTileRows);
    for (uint32_t r = 0; r < unit.rows; ++r) {
      for (uint32_t s = 0; s < unit.splits; ++s) {
        ++times[{unit.sequence, unit.kv_head, unit.first_row + r, unit.first_split + s}];
      }
    }
  }
  for (const auto& [piece, count] : times) RC_ASSERT(count == 1);
  for (uint32_t i = 0; i < step.sequences.size(); ++i) {
    const AttentionSequence& sequence = step.sequences[i];
    for (uint32_t r = 0; r < sequence.rows * step.group_heads; ++r) {
      const uint32_t position = sequence.position + r / step.group_heads;
      for (uint32_t h = 0; h < step.layout.kv_heads; ++h) {
        RC_ASSERT(times.count({i, h, r, first_seen(step.layout, position) / 512}) == 1);
        RC_ASSERT(times.count({i, h, r, position / 512}) == 1);
      }
    }
  }
}

RC_GTEST_PROP(AttentionPlanTest, partial_sums_of_cut_units_do_not_overlap, ()) {
  const Step step = any_step();
  const AttentionCut cut = cut_attention(step.sequences, step.group_heads, step.workers);
  std::vector<int> used(cut.partial_rows);
  uint64_t merged = 0;
  for (const AttentionMerge& merge : cut.merges) merged += uint64_t{merge.rows} * merge.splits;
  for (const AttentionUnit& unit : cut.units) {
    if (unit.partial == AttentionUnit::kWhole) continue;
    for (uint32_t i = 0; i < unit.rows * unit.splits; ++i) ++used.at(unit.partial + i);
  }
  RC_ASSERT(merged == used.size());
  for (const int times : used) RC_ASSERT(times == 1);
}

TEST(AttentionPlanTest, one_long_decode_with_one_kv_head_gives_all_workers_work) {
  const KvGroupLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 64};
  const AttentionSequence sequence{
      .kv = {.layout = &layout, .pages = nullptr, .table = {}}, .position = 8191, .rows = 1};
  const AttentionCut cut = cut_attention({&sequence, 1}, 4, 2);
  EXPECT_GE(cut.units.size(), 4u);
  EXPECT_EQ(cut.merges.size(), 1u);
  EXPECT_EQ(cut_attention({&sequence, 1}, 4, 1).merges.size(), 0u);
}

TEST(AttentionPlanTest, many_streams_and_long_prefills_need_no_merge) {
  const KvGroupLayout layout{.layers = 1, .kv_heads = 3, .head_dim = 64};
  const AttentionSequence prompt{
      .kv = {.layout = &layout, .pages = nullptr, .table = {}}, .position = 0, .rows = 2048};
  EXPECT_TRUE(cut_attention({&prompt, 1}, 3, 2).merges.empty());
  const std::vector<AttentionSequence> streams(
      8, {.kv = {.layout = &layout, .pages = nullptr, .table = {}}, .position = 1500, .rows = 1});
  EXPECT_TRUE(cut_attention(streams, 3, 2).merges.empty());
}

}  // namespace
}  // namespace spillway::kernels
