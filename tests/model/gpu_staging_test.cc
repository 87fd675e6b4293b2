// Room for a step's arrays is made once: whatever step there is within the limits finds enough. (A
// buffer that is too small is a failed CHECK.)
#include "model/gpu_staging.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/model/test_device.h"

namespace spillway::model {
namespace {

using kernels::KvGroupLayout;
using kernels::PageId;

struct Batch {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<std::vector<PageId>>> tables;  // (sequence, group)
  StepBatch batch;
};

// All of the rows and sequences that the limits allow, near the end of the context, in pages that
// many share.
void fill(Batch& made, const GpuStepLimits& limits, std::span<const KvGroupLayout> layouts,
          std::mt19937& random) {
  const uint32_t count = 1 + random() % limits.sequences;
  made.tokens.resize(count, std::vector<TokenId>(1));
  for (uint32_t left = limits.rows - count; left > 0;) {
    const uint32_t more = 1 + random() % left;
    auto& tokens = made.tokens[random() % count];
    tokens.resize(tokens.size() + more);
    left -= more;
  }
  uint32_t next = 10'000;
  for (uint32_t s = 0; s < count; ++s) {
    auto& tables = made.tables.emplace_back();
    for (const KvGroupLayout& layout : layouts) {
      auto& table = tables.emplace_back();
      for (uint32_t i = 0; i < limits.context_tokens / layout.page_tokens + 1; ++i) {
        table.push_back(PageId{random() % 2 == 0 || i < 34 ? i : next++});
      }
    }
  }
  for (uint32_t s = 0; s < count; ++s) {
    SequenceStep& step = made.batch.sequences.emplace_back();
    step.tokens = made.tokens[s];
    const auto rows = static_cast<uint32_t>(made.tokens[s].size());
    const uint32_t most = limits.context_tokens - rows;
    step.position = random() % 2 == 0 ? most : static_cast<uint32_t>(random() % (most + 1));
    for (const auto& table : made.tables[s]) step.tables.push_back(table);
    for (uint32_t r = 0; r < rows; ++r) {
      SampleRequest& sample = step.samples.emplace_back();
      sample.row = r;
      sample.scored = 0;
    }
  }
}

TEST(GpuStaging, the_largest_step_fits_into_what_was_reserved) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    std::vector<KvGroupLayout> layouts;
    const uint32_t kv_heads = 1 + random() % 2;
    for (uint32_t g = 0; g < 1 + random() % 2; ++g) {
      layouts.push_back({.layers = 1,
                         .kv_heads = kv_heads,
                         .head_dim = 16,
                         .page_tokens = 16,
                         .window = g == 1 ? 600u : 0});
    }
    std::vector<GroupPages> groups;
    std::vector<AngleCache> angles;
    for (const KvGroupLayout& layout : layouts) {
      groups.push_back({.layout = &layout, .base = nullptr});
      angles.emplace_back(kernels::make_rope_table({.dims = 8}), 10);
    }
    GpuStepLimits limits;
    limits.sequences = 1 + random() % 40;
    limits.rows = limits.sequences + random() % 200;
    limits.context_tokens = limits.rows + 1 + random() % 2000;
    limits.tile_rows = 1 + random() % 60;
    limits.heads = kv_heads * (1u << random() % 7);
    limits.attention.blocks_wanted = 1 + random() % 264;
    limits.attention.partials_max = limits.context_tokens / 512 + 2 + random() % 2000;
    TestDevice device(1);
    GpuStaging staging;
    ASSERT_TRUE(staging.reserve(device, groups, angles, limits));
    device.bytes_left = 0;
    for (int step = 0; step < 4; ++step) {
      Batch made;
      fill(made, limits, layouts, random);
      staging.prepare(groups, angles, made.batch, limits.graph_rows);
      uint32_t rows = 0;
      for (const GpuTile& tile : staging.tiles()) rows += tile.rows;
      EXPECT_EQ(rows, limits.rows);
    }
  }
}

}  // namespace
}  // namespace spillway::model
