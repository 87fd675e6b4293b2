// KvCache as the engine uses it: what is found again, what is shared, what is given back.
#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cache_fixture.h"

namespace spillway::cache {
namespace {

constexpr uint32_t kPage = TestCache::kPageTokens;

void expect_sound(const TestCache& cache, std::vector<TestSequence*> sequences) {
  EXPECT_EQ(cache.problem(sequences), "");
}

GroupStats stats_of(const TestCache& cache, uint32_t group = 0) {
  return cache.cache().stats().groups[group];
}

TEST(kv_cache, finds_a_released_prompt_again) {
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

TEST(kv_cache, a_waiting_request_finds_pages_of_one_in_flight) {
  TestCache cache({});
  const auto prompt = some_tokens(100);
  TestSequence first = cache.begin(prompt);
  ASSERT_TRUE(cache.extend(first, std::span(prompt).first(40)));
  EXPECT_EQ(cache.match_length(prompt), 32u);
  TestSequence second = cache.begin(prompt);
  EXPECT_EQ(second.sequence->table(0)[1], first.sequence->table(0)[1]);
  EXPECT_EQ(stats_of(cache).pinned, 2u);
  expect_sound(cache, {&first, &second});
  cache.release(std::move(first));
  EXPECT_EQ(stats_of(cache).pinned, 2u);
  cache.release(std::move(second));
  EXPECT_EQ(stats_of(cache).pinned, 0u);
}

TEST(kv_cache, the_partial_last_page_is_never_shared) {
  TestCache cache({});
  TestSequence first = cache.run(some_tokens(40));
  TestSequence second = cache.run(some_tokens(40));
  EXPECT_EQ(second.sequence->cached_tokens(), 32u);
  EXPECT_NE(second.sequence->table(0)[2], first.sequence->table(0)[2]);
  cache.release(std::move(first));
  cache.release(std::move(second));
  EXPECT_EQ(stats_of(cache).sealed, 2u);
  EXPECT_EQ(stats_of(cache).writable, 0u);
}

TEST(kv_cache, no_hit_crosses_a_tenant) {
  TestCache cache({});
  const auto prompt = some_tokens(100);
  cache.release(cache.run(prompt, "a"));
  EXPECT_EQ(cache.match_length(prompt, "b"), 0u);
  EXPECT_EQ(cache.match_length(prompt, "a"), 96u);
}

// case I1
TEST(kv_cache, no_hit_crosses_a_salt) {
  TestCache cache({});
  const auto prompt = some_tokens(100);
  const PromptKeys keys = cache.cache().keys("t", "salt", prompt);
  auto sequence = cache.cache().begin(keys, prompt);
  ASSERT_TRUE(cache.cache().reserve(*sequence, 100));
  cache.cache().commit(*sequence, prompt);
  cache.cache().release(std::move(sequence));
  EXPECT_EQ(cache.cache().match_length(keys, prompt), 96u);
  EXPECT_EQ(cache.cache().match_length(cache.cache().keys("t", "", prompt), prompt), 0u);
  EXPECT_EQ(cache.cache().match_length(cache.cache().keys("tsalt", "", prompt), prompt), 0u);
  EXPECT_EQ(cache.cache().match_length(cache.cache().keys("tsa", "lt", prompt), prompt), 0u);
}

// case K7
TEST(kv_cache, a_split_edge_keeps_its_pins_on_both_sides) {
  TestCache cache({});
  const auto prompt = some_tokens(6 * kPage);
  TestSequence running = cache.run(prompt);
  ASSERT_EQ(cache.cache().stats().tree_nodes, 1u);
  const auto other = joined(std::span(prompt).first(3 * kPage), some_tokens(2 * kPage, 9));
  TestSequence splits = cache.run(other);
  EXPECT_EQ(cache.cache().stats().tree_nodes, 3u);
  EXPECT_EQ(stats_of(cache).pinned, 8u);
  expect_sound(cache, {&running, &splits});
  cache.release(std::move(splits));
  EXPECT_EQ(stats_of(cache).pinned, 6u);
  cache.cache().clear();
  EXPECT_EQ(stats_of(cache).sealed, 6u);
  expect_sound(cache, {&running});
  cache.release(std::move(running));
}

// case K8
TEST(kv_cache, edges_part_at_page_boundaries_wherever_tokens_part) {
  for (uint32_t at = 1; at < 4 * kPage; ++at) {
    TestCache cache({});
    const auto prompt = some_tokens(4 * kPage);
    cache.release(cache.run(prompt));
    const auto other = joined(std::span(prompt).first(at), some_tokens(4 * kPage, 9));
    TestSequence sequence = cache.run(other);
    EXPECT_EQ(sequence.sequence->cached_tokens(), at / kPage * kPage);
    EXPECT_EQ(cache.cache().stats().tree_nodes, at < kPage ? 2u : 3u) << at;
    expect_sound(cache, {&sequence});
    cache.release(std::move(sequence));
  }
}

// case K9
TEST(kv_cache, of_two_that_compute_a_prefix_the_second_is_remapped) {
  TestCache cache({});
  const auto prompt = some_tokens(50);
  TestSequence first = cache.begin(prompt), second = cache.begin(prompt);
  ASSERT_TRUE(cache.extend(first, prompt, 64));
  ASSERT_TRUE(cache.cache().reserve(*second.sequence, 50));
  EXPECT_NE(second.sequence->table(0)[0], first.sequence->table(0)[0]);
  EXPECT_EQ(stats_of(cache).writable, 1u + 4u);
  ASSERT_TRUE(cache.extend(second, prompt, 64));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(second.sequence->table(0)[i], first.sequence->table(0)[i]);
  }
  EXPECT_EQ(stats_of(cache).sealed, 3u);
  EXPECT_EQ(stats_of(cache).writable, 2u);
  EXPECT_EQ(cache.cache().stats().remapped_pages, 3u);
  expect_sound(cache, {&first, &second});
  cache.release(std::move(first));
  expect_sound(cache, {&second});
  cache.release(std::move(second));
}

// case K10
TEST(kv_cache, a_start_that_gets_no_pages_leaves_everything_as_it_was) {
  TestCache cache({.capacity = {8}});
  const auto prompt = some_tokens(5 * kPage);
  cache.release(cache.run(prompt));
  TestSequence hog = cache.run(some_tokens(2 * kPage, 9));
  const GroupStats before = stats_of(cache);
  const auto longer = joined(prompt, some_tokens(4 * kPage, 5));
  TestSequence unlucky = cache.begin(longer);
  EXPECT_EQ(unlucky.sequence->cached_tokens(), 5 * kPage);
  EXPECT_FALSE(cache.cache().reserve(*unlucky.sequence, 4 * kPage));
  cache.release(std::move(unlucky));
  const GroupStats after = stats_of(cache);
  EXPECT_EQ(after.free, before.free);
  EXPECT_EQ(after.pinned, before.pinned);
  EXPECT_EQ(after.evicted, before.evicted);
  EXPECT_EQ(cache.match_length(longer), 5 * kPage);
  expect_sound(cache, {&hog});
  cache.release(std::move(hog));
}

// case K11
TEST(kv_cache, a_hit_evicted_before_it_is_pinned_is_a_miss) {
  TestCache cache({.capacity = {8}});
  const auto prompt = some_tokens(6 * kPage);
  cache.release(cache.run(prompt));
  EXPECT_EQ(cache.match_length(prompt), 5 * kPage);
  TestSequence other = cache.run(some_tokens(8 * kPage, 9));
  TestSequence late = cache.begin(prompt);
  EXPECT_EQ(late.sequence->cached_tokens(), 0u);
  cache.release(std::move(late));
  cache.release(std::move(other));
}

// case K11
TEST(kv_cache, a_double_release_is_detected) {
  TestCache cache({});
  TestSequence sequence = cache.begin(some_tokens(20));
  cache.cache().release(std::move(sequence.sequence));
  EXPECT_DEATH(cache.cache().release(std::move(sequence.sequence)), "nullptr");
}

// case K12
TEST(kv_cache, an_abort_in_any_state_returns_all_but_sealed_pages) {
  const auto prompt = some_tokens(100);
  for (uint32_t state = 0; state < 6; ++state) {
    TestCache cache({.windows = {0, 32}, .capacity = {64, 64}});
    TestSequence sequence = cache.begin(prompt);
    TestSequence twin;
    bool done = true;
    if (state >= 1) done = done && cache.cache().reserve(*sequence.sequence, 50);
    if (state >= 2) done = done && cache.extend(sequence, std::span(prompt).first(50));
    if (state >= 3) done = done && cache.extend(sequence, std::span(prompt).subspan(50));
    if (state >= 4) done = done && cache.extend(sequence, some_tokens(30, 9), 1);
    ASSERT_TRUE(done);
    if (state >= 5) {
      twin = cache.fork(sequence);
      ASSERT_TRUE(cache.cache().reserve(*twin.sequence, 40));
      cache.release(std::move(twin));
    }
    cache.release(std::move(sequence));
    for (uint32_t g = 0; g < 2; ++g) {
      EXPECT_EQ(stats_of(cache, g).writable, 0u) << state;
      EXPECT_EQ(stats_of(cache, g).pinned, 0u) << state;
    }
    expect_sound(cache, {});
    cache.cache().clear();
    EXPECT_EQ(stats_of(cache, 0).free, 64u) << state;
    EXPECT_EQ(stats_of(cache, 1).free, 64u) << state;
    EXPECT_EQ(cache.cache().stats().tree_namespaces, 0u) << state;
  }
}

// case K13
TEST(kv_cache, of_a_prompt_of_whole_pages_the_last_token_is_computed_again) {
  for (uint32_t window : {0u, 16u, 32u, 41u}) {
    TestCache cache({.windows = {0, window}, .capacity = {64, 64}});
    const auto prompt = some_tokens(6 * kPage);
    cache.release(cache.run(prompt));
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(cache.match_length(prompt), 5 * kPage);
      EXPECT_EQ(cache.match_length(joined(prompt, some_tokens(1, 7))), 6 * kPage);
      TestSequence again = cache.run(prompt);
      expect_sound(cache, {&again});
      cache.release(std::move(again));
    }
  }
}

TEST(kv_cache, a_prompt_of_one_token_is_served) {
  TestCache cache({});
  for (int time = 0; time < 2; ++time) {
    TestSequence sequence = cache.run(some_tokens(1));
    EXPECT_EQ(sequence.sequence->cached_tokens(), 0u);
    expect_sound(cache, {&sequence});
    cache.release(std::move(sequence));
  }
}

// case K15
TEST(kv_cache, eight_forks_share_the_prompt_and_keep_their_own_bytes) {
  TestCache cache({.windows = {0, 32}, .capacity = {40, 64}});
  std::vector<TestSequence> siblings;
  siblings.push_back(cache.run(some_tokens(100)));
  const uint32_t before = stats_of(cache).sealed + stats_of(cache).writable;
  for (int i = 1; i < 8; ++i) siblings.push_back(cache.fork(siblings.front()));
  // Each sibling costs its copy of the open page.
  EXPECT_EQ(stats_of(cache).sealed + stats_of(cache).writable, before + 7);
  std::vector<TestSequence*> all;
  for (uint32_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(siblings[i].sequence != nullptr);
    ASSERT_TRUE(cache.extend(siblings[i], some_tokens(35, 20 + i), 3)) << i;
    all.push_back(&siblings[i]);
  }
  expect_sound(cache, all);
  // Preempted and recomputed, one finds its own pages and no sibling's.
  const std::vector<TokenId> tokens = siblings[3].tokens;
  cache.release(std::move(siblings[3]));
  siblings[3] = cache.run(tokens);
  EXPECT_EQ(siblings[3].sequence->cached_tokens(), 128u);
  expect_sound(cache, all);
  for (TestSequence& sibling : siblings) cache.release(std::move(sibling));
}

TEST(kv_cache, a_fork_without_room_takes_nothing) {
  TestCache cache({.capacity = {3}});
  TestSequence sequence = cache.run(some_tokens(40));
  EXPECT_EQ(cache.fork(sequence).sequence, nullptr);
  EXPECT_EQ(stats_of(cache).writable, 1u);
  expect_sound(cache, {&sequence});
  cache.release(std::move(sequence));
}

TEST(kv_cache, reserve_takes_pages_in_all_groups_or_in_none) {
  TestCache cache({.windows = {0, 32}, .capacity = {16, 4}});
  TestSequence sequence = cache.begin(some_tokens(100));
  EXPECT_FALSE(cache.cache().reserve(*sequence.sequence, 5 * kPage));
  EXPECT_EQ(stats_of(cache, 0).free, 16u);
  EXPECT_EQ(stats_of(cache, 1).free, 4u);
  EXPECT_TRUE(cache.cache().reserve(*sequence.sequence, 4 * kPage));
  cache.release(std::move(sequence));
}

TEST(kv_cache, the_least_recently_used_path_is_evicted_from_its_end) {
  TestCache cache({.capacity = {10}});
  const auto a = some_tokens(4 * kPage, 1), b = some_tokens(4 * kPage, 2);
  cache.release(cache.run(a));
  cache.release(cache.run(b));
  cache.release(cache.begin(joined(a, a)));  // used again
  TestSequence other = cache.run(some_tokens(4 * kPage, 3));
  EXPECT_EQ(cache.match_length(joined(a, a)), 4 * kPage);
  EXPECT_EQ(cache.match_length(joined(b, b)), 2 * kPage);
  EXPECT_EQ(stats_of(cache).evicted, 2u);
  cache.release(std::move(other));
}

TEST(kv_cache, a_shared_start_used_again_outlives_the_branches_after_it) {
  TestCache cache({.capacity = {12}});
  const auto start = some_tokens(3 * kPage, 1), other = some_tokens(4 * kPage, 9);
  for (uint32_t i = 2; i < 4; ++i) cache.release(cache.run(joined(start, some_tokens(kPage, i))));
  cache.release(cache.run(other));
  cache.release(cache.run(joined(start, some_tokens(3, 4))));  // ends where the branches part
  // The branches go first, then what was not used again; the start is the last.
  TestSequence hog = cache.run(some_tokens(8 * kPage, 5));
  EXPECT_EQ(cache.match_length(joined(start, other)), 3 * kPage);
  EXPECT_EQ(cache.match_length(joined(other, start)), kPage);
  cache.release(std::move(hog));
}

TEST(kv_cache, a_session_is_evicted_last_but_holds_nobody_up) {
  TestCache cache({.windows = {0, 32}, .capacity = {10, 10}});
  const auto talk = some_tokens(4 * kPage, 1);
  cache.release(cache.run(talk), "talk");
  for (uint32_t i = 0; i < 5; ++i) {
    cache.release(cache.run(some_tokens(5 * kPage, 2 + i)));
    EXPECT_EQ(cache.match_length(joined(talk, talk)), 4 * kPage);
  }
  EXPECT_EQ(cache.cache().stats().sessions, 1u);
  TestSequence hog = cache.run(some_tokens(10 * kPage, 9));
  EXPECT_EQ(cache.match_length(joined(talk, talk)), 0u);
  EXPECT_EQ(cache.cache().stats().sessions, 0u);
  expect_sound(cache, {&hog});
  cache.release(std::move(hog));
}

TEST(kv_cache, an_ended_session_is_evicted_like_any_other) {
  TestCache cache({.capacity = {10}});
  const auto talk = some_tokens(4 * kPage, 1);
  cache.release(cache.run(talk), "talk");
  cache.cache().end_session("talk");
  cache.cache().end_session("never was");
  cache.release(cache.run(some_tokens(5 * kPage, 2)));
  cache.release(cache.run(some_tokens(5 * kPage, 3)));
  EXPECT_EQ(cache.match_length(joined(talk, talk)), 0u);
}

TEST(kv_cache, a_session_follows_its_last_turn) {
  TestCache cache({.capacity = {12}});
  const auto talk = some_tokens(4 * kPage, 1);
  cache.release(cache.run(talk), "talk");
  const auto longer = joined(talk, some_tokens(2 * kPage, 7));
  cache.release(cache.run(longer), "talk");
  EXPECT_EQ(cache.cache().stats().sessions, 1u);
  cache.release(cache.run(some_tokens(6 * kPage, 2)));
  cache.release(cache.run(some_tokens(6 * kPage, 3)));
  EXPECT_EQ(cache.match_length(joined(longer, talk)), 6 * kPage);
}

TEST(kv_cache, more_sessions_than_allowed_are_not_held) {
  TestCache cache({.sessions_max = 2});
  for (uint32_t i = 0; i < 4; ++i) {
    cache.release(cache.run(some_tokens(2 * kPage, i)), "session " + std::to_string(i));
  }
  EXPECT_EQ(cache.cache().stats().sessions, 2u);
  cache.cache().clear();
  cache.release(cache.run(some_tokens(2 * kPage)), "a new one");
  EXPECT_EQ(cache.cache().stats().sessions, 1u);
}

TEST(kv_cache, clear_drops_what_no_sequence_holds) {
  TestCache cache({.windows = {0, 32}, .capacity = {64, 64}});
  const auto prompt = some_tokens(6 * kPage, 1);
  cache.release(cache.run(some_tokens(6 * kPage, 2)), "talk");
  TestSequence running = cache.run(prompt);
  EXPECT_EQ(cache.cache().clear(), 6u + 3u + 1u);
  EXPECT_EQ(stats_of(cache).sealed, 6u);
  expect_sound(cache, {&running});
  cache.release(std::move(running));
}

TEST(kv_cache, with_prefix_caching_off_nothing_is_found_and_forks_still_share) {
  TestCache cache({.prefix_caching = false});
  const auto prompt = some_tokens(100);
  TestSequence first = cache.run(prompt);
  EXPECT_EQ(cache.match_length(prompt), 0u);
  TestSequence second = cache.run(prompt);
  EXPECT_EQ(second.sequence->cached_tokens(), 0u);
  EXPECT_EQ(stats_of(cache).sealed, 12u);
  TestSequence twin = cache.fork(first);
  EXPECT_EQ(stats_of(cache).sealed, 12u);
  EXPECT_EQ(stats_of(cache).writable, 3u);
  expect_sound(cache, {&first, &second, &twin});
  cache.release(std::move(first));
  EXPECT_EQ(stats_of(cache).sealed, 12u);
  cache.release(std::move(twin));
  cache.release(std::move(second));
  EXPECT_EQ(stats_of(cache).free, 64u);
}

// case K17
TEST(kv_cache, with_all_hashes_equal_answers_are_right_and_chains_are_bounded) {
  TestCache cache({.capacity = {128}, .key_mode = KeyMode::kConstant});
  std::vector<std::vector<TokenId>> prompts;
  std::vector<TestSequence> running;
  std::vector<TestSequence*> all;
  const auto shared = some_tokens(2 * kPage);
  for (uint32_t i = 0; i < 20; ++i) {
    prompts.push_back(joined(shared, some_tokens(40, 1 + i)));
    running.push_back(cache.run(prompts.back()));
  }
  for (TestSequence& sequence : running) all.push_back(&sequence);
  expect_sound(cache, all);
  uint32_t found = 0;
  for (const auto& prompt : prompts) {
    const uint32_t cached = cache.match_length(prompt);
    EXPECT_TRUE(cached == 2 * kPage || cached == 4 * kPage) << cached;
    if (cached == 4 * kPage) ++found;
  }
  EXPECT_EQ(found, PrefixTree::kChainMax);
  // Pages left out of the tree are their sequence's alone, and free when it ends.
  for (TestSequence& sequence : running) cache.release(std::move(sequence));
  EXPECT_EQ(stats_of(cache).sealed, 2u + 2u * PrefixTree::kChainMax);
  expect_sound(cache, {});
}

TEST(kv_cache, keys_are_made_on_other_threads_while_the_engine_works) {
  TestCache cache({.windows = {0, 32}, .capacity = {32, 32}});
  const auto prompt = some_tokens(200);
  const PromptKeys expected = cache.keys(prompt);
  std::vector<std::thread> callers;
  std::atomic<uint32_t> wrong = 0;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      for (int time = 0; time < 200; ++time) {
        if (cache.keys(prompt).pages != expected.pages) ++wrong;
      }
    });
  }
  for (uint32_t i = 0; i < 100; ++i) cache.release(cache.run(some_tokens(200, i % 7)), "talk");
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0u);
}

TEST(kv_cache, a_sequence_that_is_not_released_is_detected) {
  TestCache cache({});
  TestSequence sequence = cache.run(some_tokens(20));
  EXPECT_DEATH(sequence.sequence.reset(), "lease_");
  cache.release(std::move(sequence));
}

TEST(kv_cache, a_commit_without_reserve_is_detected) {
  TestCache cache({});
  const auto tokens = some_tokens(20);
  TestSequence sequence = cache.begin(tokens);
  EXPECT_DEATH(cache.cache().commit(*sequence.sequence, tokens), "CHECK");
  cache.release(std::move(sequence));
}

TEST(kv_cache, keys_of_another_prompt_are_detected) {
  TestCache cache({});
  const auto tokens = some_tokens(40);
  const PromptKeys keys = cache.keys(std::span(tokens).first(20));
  EXPECT_DEATH(cache.cache().begin(keys, tokens), "keys.tokens");
}

}  // namespace
}  // namespace spillway::cache
