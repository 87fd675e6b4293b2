// Writing K and V: every element in its place and rounded right, nothing else touched.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kernels/half.h"
#include "tests/kernels/attention_fixture.h"

namespace spillway::kernels {
namespace {

float rounded(float value, KvType type) {
  if (type == KvType::kF32) return value;
  if (type == KvType::kBf16) return bf16_to_f32(f32_to_bf16(value));
  return f16_to_f32(f32_to_f16(std::clamp(value, -65504.0f, 65504.0f)));
}

AttentionCase any_case() {
  AttentionCase setup;
  const std::vector<CpuLevel> levels = available_cpu_levels();
  setup.level = *rc::gen::elementOf(levels);
  setup.workers = *rc::gen::inRange(1u, 4u);
  setup.layout = {.layers = 2,
                  .kv_heads = *rc::gen::inRange(1u, 4u),
                  .head_dim = *rc::gen::element(2u, 10u, 64u, 80u),
                  .page_tokens = *rc::gen::element(16u, 32u, 64u),
                  .type = *rc::gen::element(KvType::kF32, KvType::kF16, KvType::kBf16)};
  setup.shape.heads = setup.layout.kv_heads;
  return setup;
}

void write(const AttentionCase& setup, const AttentionSequence& part, const TokenRows& rows,
           uint32_t first) {
  run_team(setup.workers, [&](Team& team) {
    write_kv(setup.level, team, {&part, 1}, 1,
             {rows.k.data() + first * rows.kv_stride, rows.v.data() + first * rows.kv_stride,
              rows.kv_stride});
  });
}

RC_GTEST_PROP(WriteKvTest, elements_land_in_place_rounded_and_the_rest_of_a_page_is_zero, ()) {
  const AttentionCase setup = any_case();
  const KvGroupLayout& layout = setup.layout;
  TokenRows rows(setup, *rc::gen::inRange(1u, 150u), *rc::gen::arbitrary<uint32_t>());
  for (size_t i = 0; i < rows.k.size(); i += 7) rows.k[i] *= 1e6f;   // past f16's range
  for (size_t i = 0; i < rows.v.size(); i += 5) rows.v[i] *= 1e-6f;  // subnormal in f16
  PagePoolFixture pool(layout, 12, *rc::gen::arbitrary<uint32_t>());
  PagedSequence sequence(setup, pool);
  while (sequence.position() < rows.tokens) {
    const uint32_t first = sequence.position();
    const uint32_t count = *rc::gen::inRange(1u, rows.tokens - first + 1);
    write(setup, sequence.next(count, 0), rows, first);
  }
  const PagedKv kv = sequence.kv();
  for (uint32_t t = 0; t < kv.table.size() * layout.page_tokens; ++t) {
    for (uint32_t h = 0; h < layout.kv_heads; ++h) {
      for (uint32_t d = 0; d < layout.head_dim; ++d) {
        const size_t at = t * rows.kv_stride + h * layout.head_dim + d;
        const float k = t < rows.tokens ? rounded(rows.k[at], layout.type) : 0;
        const float v = t < rows.tokens ? rounded(rows.v[at], layout.type) : 0;
        RC_ASSERT(reference::read_kv(kv, reference::KvPart::kKey, {1, h, t, d}) == k);
        RC_ASSERT(reference::read_kv(kv, reference::KvPart::kValue, {1, h, t, d}) == v);
      }
    }
  }
  // Layer 0 and the pages of others are as they were.
  for (uint32_t page = 0; page < 12; ++page) {
    const bool own = std::find(kv.table.begin(), kv.table.end(), PageId{page}) != kv.table.end();
    const std::byte* bytes = pool.at(PageId{page});
    const size_t untouched = own ? layout.layer_bytes() : layout.page_bytes();
    RC_ASSERT(
        std::all_of(bytes, bytes + untouched, [](std::byte b) { return b == std::byte{0xff}; }));
  }
}

RC_GTEST_PROP(WriteKvTest, every_level_writes_the_same_bytes, ()) {
  AttentionCase setup = any_case();
  const TokenRows rows(setup, *rc::gen::inRange(1u, 100u), *rc::gen::arbitrary<uint32_t>());
  std::vector<std::byte> expected;
  for (const CpuLevel level : available_cpu_levels()) {
    setup.level = level;
    PagePoolFixture pool(setup.layout, 8, 1);
    PagedSequence sequence(setup, pool);
    write(setup, sequence.next(rows.tokens, 0), rows, 0);
    if (expected.empty()) expected = pool.bytes();
    RC_ASSERT(pool.bytes() == expected);
  }
}

TEST(WriteKvTest, every_f16_and_bf16_rounds_as_in_half_h_at_every_level) {
  AttentionCase setup;
  setup.layout = {.layers = 1, .kv_heads = 1, .head_dim = 64};
  setup.shape.heads = 1;
  TokenRows rows(setup, 16, 1);
  std::mt19937 engine(3);
  for (int round = 0; round < 300; ++round) {
    for (float& value : rows.v) {
      const uint32_t bits = engine();
      std::memcpy(&value, &bits, sizeof value);
      if (std::isnan(value)) value = 0;
    }
    for (const KvType type : {KvType::kF16, KvType::kBf16}) {
      for (const CpuLevel level : available_cpu_levels()) {
        setup.layout.type = type;
        setup.level = level;
        PagePoolFixture pool(setup.layout, 1, 1);
        PagedSequence sequence(setup, pool);
        const AttentionSequence part = sequence.next(16, 0);
        run_team(1, [&](Team& team) {
          write_kv(level, team, {&part, 1}, 0, {rows.k.data(), rows.v.data(), rows.kv_stride});
        });
        for (uint32_t t = 0; t < 16; ++t) {
          for (uint32_t d = 0; d < 64; ++d) {
            ASSERT_EQ(reference::read_kv(part.kv, reference::KvPart::kValue, {0, 0, t, d}),
                      rounded(rows.v[t * rows.kv_stride + d], type));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
