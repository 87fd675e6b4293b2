// Paged attention: every level against its plain twin, bit for bit; the same bits for any chunking,
// batch, team and pages; nothing read that must not be; and near a naive sum in double.
#include "kernels/attention.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/kernels/attention_fixture.h"

namespace spillway::kernels {
namespace {

using Chunks = std::vector<uint32_t>;

uint32_t seed() { return *rc::gen::arbitrary<uint32_t>(); }

// The levels with kernels of their own: kAvxVnni shares those of kAvx2.
std::vector<CpuLevel> attention_levels() {
  std::vector<CpuLevel> levels = available_cpu_levels();
  std::erase(levels, CpuLevel::kAvxVnni);
  return levels;
}

// Any mix of head shapes, page sizes, windows and types.
AttentionCase any_case(CpuLevel level) {
  AttentionCase setup;
  setup.level = level;
  setup.workers = *rc::gen::inRange(1u, 4u);
  const uint32_t kv_heads = *rc::gen::element(1u, 2u, 3u);
  setup.layout = {.layers = *rc::gen::inRange(1u, 3u),
                  .kv_heads = kv_heads,
                  .head_dim = *rc::gen::element(2u, 16u, 40u, 64u, 80u, 96u, 128u),
                  .page_tokens = *rc::gen::element(16u, 32u, 64u),
                  .window = *rc::gen::element(0u, 0u, 1u, 17u, 64u, 100u, 512u, 600u),
                  .type = *rc::gen::element(KvType::kF32, KvType::kF16, KvType::kBf16)};
  setup.shape.heads = kv_heads * *rc::gen::element(1u, 2u, 3u, 4u, 7u);
  setup.shape.scale = 1.0f / std::sqrt(static_cast<float>(setup.layout.head_dim));
  setup.shape.soft_cap = *rc::gen::element(0.0f, 0.0f, 20.0f);
  return setup;
}

// Lengths around page, block, split and window edges, and any other.
uint32_t any_length(const AttentionCase& setup) {
  const uint32_t page = setup.layout.page_tokens;
  const uint32_t window = setup.layout.window;
  return *rc::gen::oneOf(rc::gen::element(1u, page - 1, page, page + 1, 63u, 64u, 65u, 511u, 512u,
                                          513u, 1025u, window + 1, window + page, 512 + window + 1),
                         rc::gen::inRange(1u, 700u));
}

Chunks any_chunks(uint32_t length) {
  Chunks chunks;
  const uint32_t widest = *rc::gen::element(length, 100u, 17u);
  for (uint32_t done = 0; done < length && chunks.size() < 40; done += chunks.back()) {
    chunks.push_back(*rc::gen::inRange(1u, widest + 1));
  }
  return chunks;
}

bool near(double got, double expected, double tolerance) {
  return std::abs(got - expected) <= tolerance;
}

// Softmax attention of one query in double, from the K and V in the pages.
std::vector<double> naive_attention(const AttentionCase& setup, const PagedKv& kv,
                                    const reference::AttentionQuery& query, const float* q) {
  const KvGroupLayout& layout = setup.layout;
  const uint32_t kv_head = query.head / (setup.shape.heads / layout.kv_heads);
  const uint32_t first =
      layout.window == 0 ? 0 : std::max(query.position + 1, layout.window) - layout.window;
  std::vector<double> scores, out(layout.head_dim);
  for (uint32_t t = first; t <= query.position; ++t) {
    double dot = 0;
    for (uint32_t d = 0; d < layout.head_dim; ++d) {
      dot += double{q[d]} *
             reference::read_kv(kv, reference::KvPart::kKey, {query.layer, kv_head, t, d});
    }
    dot *= setup.shape.scale;
    const double cap = setup.shape.soft_cap;
    scores.push_back(cap == 0 ? dot : cap * std::tanh(dot / cap));
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - max);
  for (uint32_t d = 0; d < layout.head_dim; ++d) {
    for (uint32_t t = first; t <= query.position; ++t) {
      out[d] += scores[t - first] / sum *
                reference::read_kv(kv, reference::KvPart::kValue, {query.layer, kv_head, t, d});
    }
  }
  return out;
}

class AttentionLevelTest : public testing::TestWithParam<CpuLevel> {
 protected:
  bool fused() const { return GetParam() != CpuLevel::kBaseline; }
};

INSTANTIATE_TEST_SUITE_P(Levels, AttentionLevelTest, testing::ValuesIn(attention_levels()),
                         [](const auto& info) { return std::string(cpu_level_name(info.param)); });

TEST_P(AttentionLevelTest, rows_equal_their_twin_and_are_near_double_precision) {
  EXPECT_TRUE(rc::check("attend", [&] {
    const AttentionCase setup = any_case(GetParam());
    const TokenRows rows(setup, any_length(setup), seed());
    PagePoolFixture pool(setup.layout, rows.tokens / setup.layout.page_tokens + 2, seed());
    PagedSequence sequence(setup, pool);
    const AttentionSequence part[] = {sequence.next(rows.tokens, 0)};
    std::vector<float> out(rows.q.size());
    run_step(setup, part, 0, rows, 0, out.data());
    for (int sample = 0; sample < 3; ++sample) {
      const uint32_t position = sample == 0 ? rows.tokens - 1 : *rc::gen::inRange(0u, rows.tokens);
      const uint32_t head = *rc::gen::inRange(0u, setup.shape.heads);
      const size_t at = position * rows.q_stride + head * setup.layout.head_dim;
      const reference::AttentionQuery query{.layer = 0, .head = head, .position = position};
      const float* q = rows.q.data() + at;
      std::vector<float> expected(setup.layout.head_dim);
      reference::attend(setup.shape, sequence.kv(), query, q, expected.data(), fused());
      RC_ASSERT(std::memcmp(out.data() + at, expected.data(), expected.size() * 4) == 0);
      const std::vector<double> exact = naive_attention(setup, sequence.kv(), query, q);
      for (size_t d = 0; d < exact.size(); ++d) RC_ASSERT(near(out[at + d], exact[d], 2e-5));
    }
  }));
}

TEST_P(AttentionLevelTest, any_chunking_team_and_pages_give_the_same_bits) {
  EXPECT_TRUE(rc::check("chunks", [&] {
    AttentionCase setup = any_case(GetParam());
    const TokenRows rows(setup, any_length(setup), seed());
    const uint32_t layer_seed = seed() / 2 * 2;
    const std::vector<float> whole = run_chunks(setup, rows, {}, layer_seed);
    setup.workers = *rc::gen::inRange(1u, 4u);
    setup.layout.page_tokens = *rc::gen::element(16u, 32u, 64u);
    const std::vector<float> parts = run_chunks(setup, rows, any_chunks(rows.tokens), layer_seed);
    RC_ASSERT(first_difference(setup, rows, whole, parts) == -1);
  }));
}

TEST_P(AttentionLevelTest, token_by_token_equals_one_chunk) {
  AttentionCase setup;
  setup.level = GetParam();
  for (const uint32_t window : {0u, 100u}) {
    setup.layout = {.layers = 1, .kv_heads = 1, .head_dim = 16, .window = window};
    setup.shape = {.heads = 3, .scale = 0.25f};
    const TokenRows rows(setup, 1100, window);
    setup.workers = 1;
    const std::vector<float> whole = run_chunks(setup, rows, {}, 1);
    setup.workers = 2;
    const std::vector<float> single = run_chunks(setup, rows, Chunks(1100, 1), 2);
    EXPECT_EQ(first_difference(setup, rows, whole, single), -1) << window;
  }
}

// Decode: groups of up to as many query heads as a level has rows of accumulators take a way of
// their own (attention_few.inc), larger ones that of prefill.
TEST_P(AttentionLevelTest, one_decoding_token_equals_its_twin_for_every_size_of_group) {
  AttentionCase setup;
  setup.level = GetParam();
  for (const uint32_t group : {1u, 2u, 3u, 6u, 7u}) {
    for (const uint32_t tokens : {1u, 2u, 17u, 65u, 530u}) {
      for (const uint32_t window : {0u, 40u}) {
        SCOPED_TRACE(testing::Message() << group << " heads, " << tokens << " tokens, " << window);
        setup.layout = {
            .layers = 1, .kv_heads = 2, .head_dim = 48, .window = window, .type = KvType::kF16};
        setup.shape = {.heads = 2 * group, .scale = 0.15f};
        const TokenRows rows(setup, tokens, group);
        PagePoolFixture pool(setup.layout, tokens / setup.layout.page_tokens + 2, tokens);
        PagedSequence sequence(setup, pool);
        std::vector<float> out(rows.q.size());
        for (const uint32_t count : {tokens - 1, 1u}) {
          if (count == 0) continue;
          const uint32_t first = sequence.position();
          const AttentionSequence part[] = {sequence.next(count, 0)};
          run_step(setup, part, 0, rows, first, out.data() + first * rows.q_stride);
        }
        for (uint32_t head = 0; head < setup.shape.heads; ++head) {
          const size_t at = (tokens - 1) * rows.q_stride + head * setup.layout.head_dim;
          std::vector<float> expected(setup.layout.head_dim);
          reference::attend(setup.shape, sequence.kv(),
                            {.layer = 0, .head = head, .position = tokens - 1}, rows.q.data() + at,
                            expected.data(), fused());
          EXPECT_EQ(std::memcmp(out.data() + at, expected.data(), expected.size() * 4), 0) << head;
        }
      }
    }
  }
}

TEST_P(AttentionLevelTest, a_sequence_has_the_same_bits_alone_and_in_a_batch) {
  EXPECT_TRUE(rc::check("batch", [&] {
    const AttentionCase setup = any_case(GetParam());
    const uint32_t members = *rc::gen::inRange(2u, 6u);
    const TokenRows rows(setup, any_length(setup) + members, seed());
    PagePoolFixture pool(setup.layout, members * (rows.tokens / 16 + 2), seed());
    std::vector<PagedSequence> sequences(members, PagedSequence(setup, pool));
    // Each member holds another stretch of the same rows, then takes its next tokens with all.
    std::vector<AttentionSequence> batch;
    std::vector<std::vector<float>> alone;
    const uint32_t step = rows.tokens / members;
    std::vector<float> ignored(rows.q.size());
    for (uint32_t m = 0; m < members; ++m) {
      const AttentionSequence before[] = {sequences[m].next(step * (m + 1) - step / 2, 0)};
      run_step(setup, before, 0, rows, 0, ignored.data());
    }
    for (uint32_t m = 0; m < members; ++m) {
      const uint32_t position = sequences[m].position();
      const uint32_t count = *rc::gen::inRange(1u, rows.tokens - position + 1);
      AttentionSequence part = sequences[m].next(count, 0);
      std::vector<float> out(rows.q.size());
      run_step(setup, {&part, 1}, 0, rows, position, out.data() + position * rows.q_stride);
      part.first_row = position;  // of the whole rows
      batch.push_back(part);
      alone.push_back(std::move(out));
    }
    // Rows of members overlap, so each is checked in a batch of its own order with one output.
    for (uint32_t m = 0; m < members; ++m) {
      std::vector<AttentionSequence> turned(batch.begin() + m, batch.end());
      turned.insert(turned.end(), batch.begin(), batch.begin() + m);
      TokenRows joined(setup, 0, 0);
      for (AttentionSequence& part : turned) {
        const size_t from = part.first_row;
        part.first_row = joined.tokens;
        joined.tokens += part.rows;
        joined.q.insert(joined.q.end(), rows.q.begin() + from * rows.q_stride,
                        rows.q.begin() + (from + part.rows) * rows.q_stride);
        joined.k.insert(joined.k.end(), rows.k.begin() + from * rows.kv_stride,
                        rows.k.begin() + (from + part.rows) * rows.kv_stride);
        joined.v.insert(joined.v.end(), rows.v.begin() + from * rows.kv_stride,
                        rows.v.begin() + (from + part.rows) * rows.kv_stride);
      }
      std::vector<float> out(joined.q.size());
      run_step(setup, turned, 0, joined, 0, out.data());
      const size_t columns = size_t{setup.shape.heads} * setup.layout.head_dim;
      for (uint32_t r = 0; r < turned[0].rows; ++r) {
        RC_ASSERT(std::memcmp(out.data() + r * rows.q_stride,
                              alone[m].data() + (batch[m].first_row + r) * rows.q_stride,
                              columns * sizeof(float)) == 0);
      }
    }
  }));
}

TEST_P(AttentionLevelTest, poison_past_the_end_is_never_read) {
  EXPECT_TRUE(rc::check("poison", [&] {
    const AttentionCase setup = any_case(GetParam());
    const TokenRows rows(setup, any_length(setup), seed());
    PagePoolFixture pool(setup.layout, rows.tokens / setup.layout.page_tokens + 2, seed());
    PagedSequence sequence(setup, pool);
    AttentionSequence part = sequence.next(rows.tokens, 0);
    std::vector<float> clean(rows.q.size()), poisoned(rows.q.size());
    run_step(setup, {&part, 1}, 0, rows, 0, clean.data());
    // NaN into what a later token would overwrite: the rest of the last page, K and V.
    const KvGroupLayout& layout = setup.layout;
    const size_t element = kv_type_bytes(layout.type);
    const uint32_t end =
        (rows.tokens + layout.page_tokens - 1) / layout.page_tokens * layout.page_tokens;
    for (uint32_t t = rows.tokens; t < end; ++t) {
      for (uint32_t h = 0; h < layout.kv_heads; ++h) {
        const uint32_t lane = t % 16;
        std::byte* block = pool.at(part.kv.table[t / layout.page_tokens]) +
                           layout.offset(0, h, t % layout.page_tokens / 16);
        for (uint32_t d = 0; d < layout.head_dim; ++d) {
          std::memset(block + (d * 16 + lane) * element, 0xff, element);
          std::memset(block + layout.block_bytes() + (lane * layout.head_dim + d) * element, 0xff,
                      element);
        }
      }
    }
    AttentionPlan plan(setup.level, layout, setup.shape);
    plan.prepare({&part, 1}, setup.workers);
    run_team(setup.workers, [&](Team& team) {
      plan.run(team, 0, {rows.q.data(), poisoned.data(), rows.q_stride, rows.q_stride});
    });
    RC_ASSERT(first_difference(setup, rows, clean, poisoned) == -1);
  }));
}

TEST_P(AttentionLevelTest, every_level_from_avx2_up_gives_the_same_bits) {
  if (!fused()) return;  // the baseline has an arithmetic of its own
  EXPECT_TRUE(rc::check("levels", [&] {
    AttentionCase setup = any_case(CpuLevel::kAvx2);
    const TokenRows rows(setup, any_length(setup), seed());
    const std::vector<float> expected = run_chunks(setup, rows, {}, 0);
    setup.level = GetParam();
    RC_ASSERT(first_difference(setup, rows, expected, run_chunks(setup, rows, {}, 0)) == -1);
  }));
}

TEST(AttentionTest, one_plan_serves_many_layers_and_steps) {
  AttentionCase setup;
  setup.level = attention_levels().back();
  setup.workers = 2;
  setup.layout = {.layers = 2, .kv_heads = 1, .head_dim = 16};
  setup.shape = {.heads = 4, .scale = 0.125f};
  const TokenRows rows(setup, 700, 5);
  PagePoolFixture pool(setup.layout, 90, 6);
  PagedSequence sequence(setup, pool);
  AttentionPlan plan(setup.level, setup.layout, setup.shape);
  uint32_t first = 0;
  std::vector<float> out(rows.q.size()), expected(rows.q.size());
  for (const uint32_t count : {600u, 1u, 99u}) {
    const AttentionSequence part[] = {sequence.next(count, 0)};
    plan.prepare(part, setup.workers);
    run_team(setup.workers, [&](Team& team) {
      for (uint32_t layer = 0; layer < setup.layout.layers; ++layer) {
        write_kv(setup.level, team, part, layer,
                 {rows.k.data() + first * rows.kv_stride, rows.v.data() + first * rows.kv_stride,
                  rows.kv_stride});
        team.barrier();
        plan.run(team, layer,
                 {rows.q.data() + first * rows.q_stride, out.data() + first * rows.q_stride,
                  rows.q_stride, rows.q_stride});
        team.barrier();
      }
    });
    first += count;
  }
  setup.workers = 1;
  expected = run_chunks(setup, rows, {}, 0);
  EXPECT_EQ(first_difference(setup, rows, out, expected), -1);
}

}  // namespace
}  // namespace spillway::kernels
