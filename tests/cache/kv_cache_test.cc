// KvCache as the engine uses it: what is found again, what is shared, what is given back.
#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include "cache_fixture.h"

namespace spillway::cache {
namespace {

class KvCacheTest : public ::testing::Test {
 protected:
  void expect_sound(TestCache& cache, std::vector<TestSequence*> sequences) {
    EXPECT_EQ(cache.problem(sequences), "");
  }
};

TEST_F(KvCacheTest, finds_a_released_prompt_again) {
  TestCache cache({});
  const auto prompt = some_tokens(100);
  EXPECT_EQ(cache.match_length(prompt), 0u);
  cache.release(cache.run(prompt));
  EXPECT_EQ(cache.match_length(prompt), 96u);
  TestSequence again = cache.begin(prompt);
  EXPECT_EQ(again.sequence->cached_tokens(), 96u);
  expect_sound(cache, {&again});
  cache.release(std::move(again));
}

}  // namespace
}  // namespace spillway::cache
