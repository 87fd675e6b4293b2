// Layer groups with a sliding window: what they hold, and where prefixes can be taken up again.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/kv_cache.h"
#include "cache/lru_policy.h"
#include "cache_fixture.h"

namespace spillway::cache {
namespace {

constexpr uint32_t kPage = TestCache::kPageTokens;

void expect_sound(const TestCache& cache, std::vector<TestSequence*> sequences) {
  EXPECT_EQ(cache.problem(sequences), "");
}

uint32_t used_pages(const KvCache& cache, uint32_t group) {
  const GroupStats stats = cache.stats().groups[group];
  return stats.capacity - stats.free;
}

// gemma-3-270m: 18 layers, every 6th of them full, a window of 512 tokens on the others.
class GemmaTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kWindow = 512;
  static constexpr uint32_t kContext = 8192;

  static kernels::KvGroupLayout layout(uint32_t layers, uint32_t window) {
    kernels::KvGroupLayout made;
    made.layers = layers;
    made.kv_heads = 1;
    made.head_dim = 256;
    made.window = window;
    return made;
  }

  void make_cache(uint32_t sequences) {
    KvCacheOptions options;
    for (uint32_t g = 0; g < 2; ++g) {
      const uint32_t capacity = sequences * (g == 0 ? kContext / kPage + 8 : 100);
      const size_t bytes = capacity * layouts_[g].page_bytes();
      memory_.emplace_back(
          static_cast<std::byte*>(std::aligned_alloc(kernels::kPageAlignment, bytes)), &std::free);
      options.groups.push_back({layouts_[g], memory_.back().get(), capacity});
    }
    options.fingerprint = "gemma";
    cache_ = std::make_unique<KvCache>(std::move(options), std::make_unique<LruPolicy>());
  }

  size_t used_bytes() const {
    size_t bytes = 0;
    for (uint32_t g = 0; g < 2; ++g) bytes += used_pages(*cache_, g) * layouts_[g].page_bytes();
    return bytes;
  }

  std::vector<kernels::KvGroupLayout> layouts_ = {layout(3, 0), layout(15, kWindow)};
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> memory_;  // never touched
  std::unique_ptr<KvCache> cache_;
};

TEST_F(GemmaTest, after_prefill_of_8k_the_cache_is_under_a_third_of_one_for_all_layers) {
  constexpr uint32_t kSequences = 3, kChunk = 512;
  make_cache(kSequences);
  std::vector<std::unique_ptr<Sequence>> running;
  const size_t all_layers = layout(18, 0).page_bytes() * (kContext / kPage);
  for (uint32_t i = 0; i < kSequences; ++i) {
    const auto prompt = some_tokens(kContext, i);
    running.push_back(cache_->begin(cache_->keys("", "", prompt), prompt));
    for (uint32_t at = 0; at < kContext; at += kChunk) {
      ASSERT_TRUE(cache_->reserve(*running.back(), kChunk));
      // While prefilling: its window, a page, and the chunk.
      EXPECT_LE(running.back()->pages_held()[1], (kWindow + kChunk) / kPage + 1);
      cache_->commit(*running.back(), std::span(prompt).subspan(at, kChunk));
      EXPECT_LE(running.back()->pages_held()[1], kWindow / kPage + 1);
    }
    EXPECT_LE(used_pages(*cache_, 1), (i + 1) * (kWindow / kPage + 1));
    EXPECT_LT(used_bytes() * 3, (i + 1) * all_layers);
  }
  EXPECT_EQ(cache_->check_integrity(), "");
  for (auto& sequence : running) cache_->release(std::move(sequence));
}

TEST_F(GemmaTest, while_decoding_a_sequence_holds_its_window_and_a_page) {
  make_cache(1);
  const auto tokens = some_tokens(2000);
  auto sequence =
      cache_->begin(cache_->keys("", "", std::span(tokens).first(1)), std::span(tokens).first(1));
  for (const TokenId& token : tokens) {
    ASSERT_TRUE(cache_->reserve(*sequence, 1));
    EXPECT_LE(sequence->pages_held()[1], kWindow / kPage + 1);
    cache_->commit(*sequence, {&token, 1});
    EXPECT_LE(used_pages(*cache_, 1), kWindow / kPage + 1);
  }
  cache_->release(std::move(sequence));
  // The turn's end can be taken up again, the rest has only its full pages.
  EXPECT_EQ(used_pages(*cache_, 1), kWindow / kPage);
  const auto next = joined(tokens, some_tokens(1, 9));
  EXPECT_EQ(cache_->match_length(cache_->keys("", "", next), next), 2000u);
}

// case K14
TEST(window, prompts_that_part_anywhere_get_the_pages_of_their_own_prefix) {
  for (std::vector<uint32_t> windows :
       {std::vector<uint32_t>{0}, {0, 32}, {0, 41}, {0, 16}, {48}}) {
    const auto prompt = some_tokens(7 * kPage);
    for (uint32_t at = 1; at <= prompt.size(); ++at) {
      TestCache cache({.windows = windows, .capacity = {64, 64}});
      TestSequence first = cache.run(prompt);
      const auto other = joined(std::span(prompt).first(at), some_tokens(3 * kPage + 5, 9));
      TestSequence second = cache.run(other, {}, 20);
      expect_sound(cache, {&first, &second});
      cache.release(std::move(first));
      cache.release(std::move(second));
      // Both again, now from what is cached: the fork in the tree is a place to start from.
      const auto third = joined(std::span(prompt).first(at), some_tokens(20, 7));
      EXPECT_EQ(cache.match_length(third), at / kPage * kPage) << at;
      TestSequence again = cache.run(other), new_branch = cache.run(third);
      EXPECT_EQ(again.sequence->cached_tokens(), (other.size() - 1) / kPage * kPage);
      expect_sound(cache, {&again, &new_branch});
      cache.release(std::move(again));
      cache.release(std::move(new_branch));
    }
  }
}

TEST(window, a_match_ends_where_each_window_is_whole) {
  TestCache cache({.windows = {0, 32}, .capacity = {64, 64}});
  const auto prompt = some_tokens(10 * kPage);
  cache.release(cache.run(prompt));
  // Within the prompt only full pages are left: nothing to start from.
  EXPECT_EQ(cache.match_length(std::span(prompt).first(6 * kPage)), 0u);
  EXPECT_EQ(cache.match_length(joined(prompt, prompt)), 10 * kPage);
}

TEST(window, a_match_ends_where_all_windows_are_whole_at_once) {
  TestCache cache({.windows = {32, 64}, .capacity = {4, 5}});
  const auto prompt = some_tokens(4 * kPage + 1);
  cache.release(cache.run(std::span(prompt).first(3 * kPage + 1)));
  cache.release(cache.run(prompt));
  // Each group loses one page: the first its page 1, before 3; the second its page 3, before 4.
  TestSequence other = cache.run(some_tokens(kPage + 1, 9));
  EXPECT_EQ(cache.cache().stats().groups[0].evicted, 1u);
  EXPECT_EQ(cache.cache().stats().groups[1].evicted, 1u);
  EXPECT_EQ(cache.match_length(prompt), 0u);
  TestSequence again = cache.begin(prompt);
  expect_sound(cache, {&other, &again});
  cache.release(std::move(again));
  cache.release(std::move(other));
}

TEST(window, a_breakpoint_can_be_branched_from) {
  TestCache cache({.windows = {0, 32}, .capacity = {64, 64}});
  const auto prompt = some_tokens(10 * kPage);
  TestSequence sequence = cache.begin(prompt);
  cache.cache().keep_breakpoint(*sequence.sequence, 6 * kPage + 3);
  ASSERT_TRUE(cache.extend(sequence, prompt, 7));
  EXPECT_EQ(cache.match_length(joined(std::span(prompt).first(6 * kPage), prompt)), 6 * kPage);
  EXPECT_EQ(cache.match_length(joined(std::span(prompt).first(7 * kPage), prompt)), 6 * kPage);
  expect_sound(cache, {&sequence});
  cache.release(std::move(sequence));
}

TEST(window, a_session_pages_survive_the_windows_of_others) {
  TestCache cache({.windows = {0, 32}, .capacity = {200, 12}});
  const auto talk = some_tokens(6 * kPage);
  cache.release(cache.run(talk), "talk");
  for (uint32_t i = 1; i < 8; ++i) cache.release(cache.run(some_tokens(6 * kPage, i)));
  EXPECT_GT(cache.cache().stats().groups[1].evicted, 0u);
  EXPECT_EQ(cache.match_length(joined(talk, talk)), 6 * kPage);
  // Others lose their window pages first and are computed again from where they still have some.
  EXPECT_EQ(cache.match_length(joined(some_tokens(6 * kPage, 1), talk)), 0u);
  expect_sound(cache, {});
}

TEST(window, full_pages_that_outlived_their_windows_are_filled_up_again) {
  TestCache cache({.windows = {0, 32}, .capacity = {200, 12}});
  const auto prompt = some_tokens(6 * kPage);
  cache.release(cache.run(prompt));
  for (uint32_t i = 1; i < 8; ++i) cache.release(cache.run(some_tokens(6 * kPage, i)));
  ASSERT_EQ(cache.match_length(joined(prompt, prompt)), 0u);
  const uint32_t sealed = cache.cache().stats().groups[0].sealed;
  TestSequence again = cache.run(prompt);
  EXPECT_EQ(cache.cache().stats().groups[0].sealed, sealed);  // its full pages were still there
  expect_sound(cache, {&again});
  cache.release(std::move(again));
  EXPECT_EQ(cache.match_length(joined(prompt, prompt)), 6 * kPage);
}

TEST(window, two_sequences_share_window_pages_while_both_see_them) {
  TestCache cache({.windows = {0, 64}, .capacity = {64, 64}});
  const auto prompt = some_tokens(4 * kPage);
  TestSequence first = cache.run(prompt);
  TestSequence second = cache.begin(joined(prompt, some_tokens(9, 5)));
  EXPECT_EQ(second.sequence->table(1)[1], first.sequence->table(1)[1]);
  ASSERT_TRUE(cache.extend(first, some_tokens(6 * kPage, 8)));  // leaves them behind
  expect_sound(cache, {&first, &second});
  ASSERT_TRUE(cache.extend(second, some_tokens(9, 5)));
  expect_sound(cache, {&first, &second});
  cache.release(std::move(first));
  cache.release(std::move(second));
}

}  // namespace
}  // namespace spillway::cache
