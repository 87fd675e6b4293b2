#include "runtime/prng.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace spillway {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(prng, philox_gives_the_published_answers) {
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

RC_GTEST_PROP(prng, a_draw_depends_on_its_place_alone, (uint64_t seed, uint64_t stream)) {
  Prng prng(seed, stream);
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 100; ++i) {
    const uint64_t bits = prng.next();
    RC_ASSERT(bits == random_at(seed, stream, i));
    seen.insert(bits);
  }
  RC_ASSERT(seen.size() == 100u);
  RC_ASSERT(random_at(seed, stream, 0) != random_at(seed + 1, stream, 0));
  RC_ASSERT(random_at(seed, stream, 0) != random_at(seed, stream + 1, 0));
}

RC_GTEST_PROP(prng, below_covers_its_range_evenly, (uint64_t seed)) {
  Prng prng(seed);
  std::array<uint32_t, 7> hits{};
  for (int i = 0; i < 7000; ++i) ++hits[prng.below(7)];
  // Each count is binomial(7000, 1/7): mean 1000, standard deviation 29.3; this is +-6.8 of them.
  for (const uint32_t hit : hits) RC_ASSERT(hit > 800u && hit < 1200u);
}

TEST(prng, unit_interval_has_no_one) {
  EXPECT_EQ(unit_interval(0), 0.0);
  EXPECT_LT(unit_interval(~uint64_t{0}), 1.0);
  EXPECT_EQ(unit_interval(uint64_t{1} << 63), 0.5);
}

}  // namespace
}  // namespace spillway
