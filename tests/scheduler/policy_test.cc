#include "scheduler/policy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

namespace spillway::scheduler {
namespace {

PolicyState one_group(uint32_t capacity, uint32_t available) {
  PolicyState state;
  state.groups.push_back(
      {.page_tokens = 16, .pages_capacity = capacity, .pages_available = available});
  return state;
}

RunningSequence decoding(uint64_t id, uint32_t written, uint32_t held, uint32_t progress) {
  return {.id = id,
          .slot = static_cast<uint32_t>(id),
          .written = written,
          .tokens = written + 1,
          .pages_held = {held},
          .output_tokens_left = 1000,
          .progress = progress};
}

TEST(PagesFor, counts_only_pages_a_window_still_sees) {
  const PolicyGroup full{.page_tokens = 16};
  EXPECT_EQ(pages_for(full, 0, 0), 0u);
  EXPECT_EQ(pages_for(full, 0, 1), 1u);
  EXPECT_EQ(pages_for(full, 0, 16), 1u);
  EXPECT_EQ(pages_for(full, 16, 17), 2u);
  const PolicyGroup window{.page_tokens = 16, .window = 32};
  EXPECT_EQ(pages_for(window, 31, 32), 2u);
  EXPECT_EQ(pages_for(window, 46, 47), 3u);  // sees [15, 46]: pages 0 to 2
  EXPECT_EQ(pages_for(window, 47, 48), 2u);  // sees [16, 47]
}

TEST(Admit, longest_cached_prefix_goes_first) {
  PolicyState state = one_group(100, 100);
  state.waiting.push_back({.id = 1, .tokens = 100, .matched_tokens = 0, .output_tokens_left = 8});
  state.waiting.push_back({.id = 2, .tokens = 100, .matched_tokens = 64, .output_tokens_left = 8});
  EXPECT_EQ(admit({}, state), (std::vector<uint64_t>{2, 1}));
}

TEST(Admit, ageing_beats_a_longer_prefix_that_came_later) {
  PolicyState state = one_group(100, 100);
  state.waiting.push_back({.id = 1, .waited_steps = 2, .tokens = 100, .output_tokens_left = 8});
  state.waiting.push_back({.id = 2, .tokens = 100, .matched_tokens = 96, .output_tokens_left = 8});
  EXPECT_EQ(admit({}, state), (std::vector<uint64_t>{1, 2}));
}

TEST(Admit, priority_comes_before_prefix) {
  PolicyState state = one_group(100, 100);
  state.waiting.push_back({.id = 1, .priority = 1, .tokens = 99, .matched_tokens = 96});
  state.waiting.push_back({.id = 2, .priority = 0, .tokens = 99});
  EXPECT_EQ(admit({}, state), (std::vector<uint64_t>{2, 1}));
}

TEST(Admit, of_two_with_the_same_next_page_only_one_computes_it) {
  PolicyState state = one_group(100, 100);
  state.waiting.push_back({.id = 1, .tokens = 40, .next_page_key = 7});
  state.waiting.push_back({.id = 2, .tokens = 40, .next_page_key = 7});
  state.waiting.push_back({.id = 3, .tokens = 40, .next_page_key = 8});
  EXPECT_EQ(admit({}, state), (std::vector<uint64_t>{1, 3}));
  state.waiting[2].leader_running = true;
  EXPECT_EQ(admit({}, state), (std::vector<uint64_t>{1}));
}

TEST(Admit, leaves_running_sequences_their_headroom) {
  PolicyState state = one_group(10, 6);
  state.running.push_back(decoding(1, 63, 4, 0));  // promised 96 tokens: 2 pages more
  state.waiting.push_back({.id = 2, .tokens = 33, .output_tokens_left = 100});  // 65 tokens: 5
  EXPECT_TRUE(admit({}, state).empty());
  state.waiting[0].tokens = 32;  // 64 tokens: 4 pages
  EXPECT_EQ(admit({}, state), (std::vector<uint64_t>{2}));
}

TEST(Admit, small_requests_stop_overtaking_one_that_waited_long) {
  PolicyState state = one_group(20, 4);
  state.running.push_back(decoding(1, 255, 16, 500));
  state.waiting.push_back({.id = 2, .waited_steps = 5, .tokens = 160, .output_tokens_left = 1});
  state.waiting.push_back({.id = 3, .tokens = 16, .output_tokens_left = 1});
  EXPECT_EQ(admit({}, state), (std::vector<uint64_t>{3}));
  state.waiting[0].waited_steps = 128;
  EXPECT_TRUE(admit({}, state).empty());
}

TEST(PlanTest, decodes_share_a_step_with_a_bounded_prefill) {
  PolicyState state = one_group(1000, 1000);
  state.running.push_back(decoding(1, 20, 2, 3));
  state.running.push_back({.id = 2, .slot = 2, .tokens = 2000, .output_tokens_left = 5});
  const Plan step = plan({.mixed_prefill_max = 100}, state);
  ASSERT_EQ(step.steps.size(), 2u);
  EXPECT_EQ(step.steps[0].tokens, 1u);
  EXPECT_EQ(step.steps[1].tokens, 100u);
}

TEST(PlanTest, the_last_in_order_of_service_is_preempted) {
  PolicyState state = one_group(9, 0);
  for (uint64_t id = 1; id <= 3; ++id) state.running.push_back(decoding(id, 48, 3, 40));
  const Plan step = plan({}, state);
  EXPECT_EQ(step.preempt, (std::vector<uint32_t>{3}));
  EXPECT_EQ(step.steps.size(), 2u);
}

// case K16
TEST(PlanTest, a_sequence_without_progress_is_not_preempted) {
  PolicyState state = one_group(9, 1);
  state.running.push_back(decoding(1, 48, 3, 40));
  state.running.push_back(decoding(2, 48, 3, 31));  // promised one page more
  const Plan step = plan({}, state);
  EXPECT_TRUE(step.preempt.empty());
  ASSERT_EQ(step.steps.size(), 1u);
  EXPECT_EQ(step.steps[0].slot, 2u);
}

WaitingSequence waits(uint64_t id, uint32_t steps, bool swapped_out) {
  return {.id = id,
          .waited_steps = steps,
          .tokens = 48,
          .output_tokens_left = 1000,
          .swapped_out = swapped_out};
}

// Nine pages of two sequences, each of which has run for `progress` tokens.
PolicyState two_running(uint32_t progress) {
  PolicyState state = one_group(10, 0);
  for (uint64_t id = 1; id <= 2; ++id) {
    state.running.push_back(decoding(id, 70, 5, progress));
    state.running.back().swappable = true;
  }
  return state;
}

// case K16
TEST(NextTurn, nobody_is_swapped_out_before_its_slice_is_over) {
  PolicyState state = two_running(63);
  state.waiting.push_back(waits(0, 500, false));
  EXPECT_TRUE(next_turn({.slice_tokens = 64}, state).swap_out.empty());
  state.running[1].progress = 64;
  EXPECT_EQ(next_turn({.slice_tokens = 64}, state).swap_out, (std::vector<uint32_t>{2}));
  state.running[1].swappable = false;
  EXPECT_TRUE(next_turn({.slice_tokens = 64}, state).swap_out.empty());
}

TEST(NextTurn, a_turn_goes_on_for_up_to_a_page_until_little_is_computed_again) {
  PolicyState state = two_running(63);
  state.waiting.push_back(waits(0, 500, false));
  const uint32_t page = state.groups[0].page_tokens;
  state.running[1].progress = 64;
  state.running[1].lost = 4;
  EXPECT_TRUE(next_turn({.slice_tokens = 64}, state).swap_out.empty());
  state.running[1].lost = 3;
  EXPECT_EQ(next_turn({.slice_tokens = 64}, state).swap_out, (std::vector<uint32_t>{2}));
  state.running[1].lost = page;
  state.running[1].progress = 64 + page;
  EXPECT_EQ(next_turn({.slice_tokens = 64}, state).swap_out, (std::vector<uint32_t>{2}));
}

TEST(NextTurn, who_was_swapped_out_stays_so_for_a_slice) {
  PolicyState state = two_running(200);
  state.waiting.push_back(waits(0, 63, true));
  EXPECT_TRUE(next_turn({.slice_tokens = 64}, state).swap_out.empty());
  state.waiting.push_back(waits(1, 0, false));  // a newcomer need not wait
  Turn turn = next_turn({.slice_tokens = 64}, state);
  EXPECT_EQ(turn.admit, 1u);
  EXPECT_EQ(turn.swap_out.size(), 1u);
  state.waiting[0].waited_steps = 64;
  turn = next_turn({.slice_tokens = 64}, state);
  EXPECT_EQ(turn.admit, 0u);
}

TEST(NextTurn, only_so_many_streams_take_turns) {
  PolicyState state = two_running(200);
  state.waiting.push_back(waits(0, 100, true));
  state.waiting.push_back(waits(1, 900, false));
  EXPECT_EQ(next_turn({.slice_tokens = 64, .turns_among = 4}, state).admit, 1u);
  EXPECT_EQ(next_turn({.slice_tokens = 64, .turns_among = 3}, state).admit, 0u);
  EXPECT_EQ(next_turn({.slice_tokens = 64, .turns_among = 3}, state).swap_out.size(), 1u);
  EXPECT_TRUE(next_turn({.slice_tokens = 64, .turns_among = 2}, state).swap_out.empty());
  EXPECT_TRUE(next_turn({.slice_tokens = 64, .turns_among = 1}, state).swap_out.empty());
}

// A scheduler without cache around the policy: page tables are counts, tokens are counts.
class CountingEngine {
 public:
  CountingEngine(PolicyOptions options, std::vector<PolicyGroup> groups)
      : options_(options), groups_(std::move(groups)) {}

  void submit(uint64_t id, uint32_t prompt, uint32_t output, int32_t priority) {
    waiting_[id] = {.id = id, .priority = priority, .tokens = prompt, .output_tokens_left = output};
  }

  bool idle() const { return waiting_.empty() && running_.empty(); }
  uint64_t steps() const { return steps_; }

  void step() {
    for (uint64_t id : admit(options_, state())) {
      const WaitingSequence& waiting = waiting_.at(id);
      running_[static_cast<uint32_t>(id)] = {.id = id,
                                             .slot = static_cast<uint32_t>(id),
                                             .priority = waiting.priority,
                                             .tokens = waiting.tokens,
                                             .output_tokens_left = waiting.output_tokens_left};
      waiting_.erase(id);
    }
    RC_ASSERT(running_.size() <= options_.sequences_max);
    const Plan plan = scheduler::plan(options_, state());
    for (uint32_t slot : plan.preempt) preempt(slot);
    uint32_t rows = 0;
    for (const PlannedStep& step : plan.steps) {
      rows += step.tokens;
      run(step);
    }
    RC_ASSERT(rows <= options_.step_tokens_max);
    RC_ASSERT(idle() || rows > 0);  // always progress
    for (auto& [id, waiting] : waiting_) ++waiting.waited_steps;
    ++steps_;
  }

 private:
  PolicyState state() const {
    PolicyState result;
    result.groups = groups_;
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      uint32_t held = 0;
      for (const auto& [slot, sequence] : running_) held += sequence.pages_held[g];
      RC_ASSERT(held <= groups_[g].pages_capacity);
      result.groups[g].pages_available = groups_[g].pages_capacity - held;
    }
    for (const auto& [id, waiting] : waiting_) result.waiting.push_back(waiting);
    for (const auto& [slot, running] : running_) result.running.push_back(running);
    return result;
  }

  void preempt(uint32_t slot) {
    const RunningSequence& sequence = running_.at(slot);
    RC_ASSERT(sequence.progress >= options_.headroom_tokens);  // case K16
    waiting_[sequence.id] = {.id = sequence.id,
                             .priority = sequence.priority,
                             .tokens = sequence.tokens,
                             .output_tokens_left = sequence.output_tokens_left};
    running_.erase(slot);
  }

  void run(const PlannedStep& step) {
    RunningSequence& sequence = running_.at(step.slot);
    RC_ASSERT(step.tokens >= 1u);
    RC_ASSERT(sequence.written + step.tokens <= sequence.tokens);
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      sequence.pages_held[g] =
          std::max(sequence.pages_held[g],
                   pages_for(groups_[g], sequence.written, sequence.written + step.tokens));
    }
    static_cast<void>(state());  // the step's own pages fit beside all others'
    sequence.written += step.tokens;
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      sequence.pages_held[g] = pages_for(groups_[g], sequence.written, sequence.written);
    }
    if (sequence.written < sequence.tokens) return;
    ++sequence.tokens;
    ++sequence.progress;
    if (--sequence.output_tokens_left == 0) running_.erase(step.slot);
  }

  PolicyOptions options_;
  std::vector<PolicyGroup> groups_;
  std::map<uint64_t, WaitingSequence> waiting_;
  std::map<uint32_t, RunningSequence> running_;
  uint64_t steps_ = 0;
};

RC_GTEST_PROP(PolicyProperty, every_request_that_fits_alone_finishes_within_its_pages, ()) {
  PolicyOptions options;
  options.sequences_max = *rc::gen::inRange(1u, 12u);
  options.step_tokens_max = *rc::gen::inRange(12u, 200u);
  options.mixed_prefill_max = *rc::gen::inRange(1u, 100u);
  std::vector<PolicyGroup> groups = {
      {.page_tokens = 16, .pages_capacity = *rc::gen::inRange(8u, 80u)}};
  if (*rc::gen::arbitrary<bool>()) {
    groups.push_back({.page_tokens = 16,
                      .window = *rc::gen::inRange(1u, 100u),
                      .pages_capacity = *rc::gen::inRange(20u, 80u)});
  }
  CountingEngine engine(options, groups);
  uint32_t total = 0;
  const uint32_t count = *rc::gen::inRange(1u, 40u);
  for (uint64_t id = 1; id <= count; ++id) {
    const uint32_t prompt = *rc::gen::inRange(1u, 900u);
    const uint32_t output = *rc::gen::inRange(1u, 300u);
    if (!fits_alone(options, groups, prompt + output)) continue;
    engine.submit(id, prompt, output, *rc::gen::inRange(-1, 2));
    total += prompt + output;
    for (uint32_t steps = *rc::gen::inRange(0u, 20u); steps > 0 && !engine.idle(); --steps) {
      engine.step();
    }
  }
  while (!engine.idle()) {
    engine.step();
    RC_ASSERT(engine.steps() < 1000u + 100ull * total);
  }
}

}  // namespace
}  // namespace spillway::scheduler
