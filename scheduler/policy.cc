#include "scheduler/policy.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_set>

#include "runtime/check.h"

namespace spillway::scheduler {
namespace {

uint32_t ceil_div(uint32_t value, uint32_t by) { return (value + by - 1) / by; }

// Tokens a sequence is promised room for: what it has, and its headroom of output.
uint32_t promised_tokens(const PolicyOptions& options, uint32_t tokens, uint32_t progress,
                         uint32_t output_left) {
  const uint32_t headroom =
      progress < options.headroom_tokens ? options.headroom_tokens - progress : 0;
  return tokens + std::min(headroom, output_left);
}

// Pages that each choice beyond the first adds: a copy of the open page and its headroom.
uint32_t fork_pages(const PolicyOptions& options, const PolicyGroup& group, uint32_t choices) {
  return (choices - 1) * (1 + ceil_div(options.headroom_tokens, group.page_tokens));
}

// What is still promised to a running sequence and not yet in its hands.
uint32_t debt(const PolicyOptions& options, const PolicyGroup& group, uint32_t group_index,
              const RunningSequence& sequence) {
  if (sequence.progress >= options.headroom_tokens) return 0;
  const uint32_t tokens =
      promised_tokens(options, sequence.tokens, sequence.progress, sequence.output_tokens_left);
  const uint32_t most =
      peak_pages(options, group, tokens) + fork_pages(options, group, sequence.choices);
  const uint32_t held = sequence.pages_held[group_index] + sequence.pages_loading[group_index];
  return most > held ? most - held : 0;
}

// The pages of one step, taken out as sequences get theirs.
class PageBudget {
 public:
  PageBudget(const PolicyOptions& options, const PolicyState& state)
      : options_(options), state_(state) {
    for (uint32_t g = 0; g < state.groups.size(); ++g) {
      available_[g] = state.groups[g].pages_available;
      for (const RunningSequence& sequence : state.running) {
        promised_[g] += debt(options, state.groups[g], g, sequence);
      }
    }
  }

  // Most tokens up to `wanted` that `sequence` has room for without touching others' promises.
  uint32_t room(const RunningSequence& sequence, uint32_t wanted) const {
    uint32_t tokens = wanted;
    for (uint32_t g = 0; g < state_.groups.size(); ++g) {
      const PolicyGroup& group = state_.groups[g];
      const uint32_t own = debt(options_, group, g, sequence);
      const uint32_t others = promised_[g] - std::min(promised_[g], own);
      const uint32_t free = available_[g] > others ? available_[g] - others : 0;
      while (tokens > 0 && needed(g, sequence, tokens) > free) {
        tokens -= std::min(tokens, (sequence.written + tokens - 1) % group.page_tokens + 1);
      }
    }
    return tokens;
  }

  void take(const RunningSequence& sequence, uint32_t tokens) {
    for (uint32_t g = 0; g < state_.groups.size(); ++g) {
      const uint32_t pages = needed(g, sequence, tokens);
      available_[g] -= pages;
      promised_[g] -=
          std::min({promised_[g], pages, debt(options_, state_.groups[g], g, sequence)});
    }
  }

  void give_back(const RunningSequence& sequence) {
    for (uint32_t g = 0; g < state_.groups.size(); ++g) {
      available_[g] += sequence.pages_held[g] + sequence.pages_loading[g];
      const uint32_t own = debt(options_, state_.groups[g], g, sequence);
      promised_[g] -= std::min(promised_[g], own);
    }
  }

 private:
  uint32_t needed(uint32_t g, const RunningSequence& sequence, uint32_t tokens) const {
    const uint32_t pages = pages_for(state_.groups[g], sequence.written, sequence.written + tokens);
    return pages > sequence.pages_held[g] ? pages - sequence.pages_held[g] : 0;
  }

  const PolicyOptions& options_;
  const PolicyState& state_;
  PageCounts available_{};
  PageCounts promised_{};
};

bool serves_before(const RunningSequence& a, const RunningSequence& b) {
  if (a.priority != b.priority) return a.priority < b.priority;
  if (a.id != b.id) return a.id < b.id;
  return a.slot < b.slot;
}

bool waits_before(const PolicyOptions& options, const WaitingSequence& a,
                  const WaitingSequence& b) {
  if (a.priority != b.priority) return a.priority < b.priority;
  const uint64_t a_score = a.matched_tokens + uint64_t{a.waited_steps} * options.ageing_tokens;
  const uint64_t b_score = b.matched_tokens + uint64_t{b.waited_steps} * options.ageing_tokens;
  if (a_score != b_score) return a_score > b_score;
  return a.id < b.id;
}

}  // namespace

uint32_t pages_for(const PolicyGroup& group, uint32_t written, uint32_t tokens) {
  const uint32_t end = ceil_div(tokens, group.page_tokens);
  if (group.window == 0 || written < group.window) return end;
  // The query at `written` sees [written - window + 1, written].
  const uint32_t first = (written - group.window + 1) / group.page_tokens;
  return end - std::min(first, end);
}

uint32_t peak_pages(const PolicyOptions& options, const PolicyGroup& group, uint32_t tokens) {
  const uint32_t all = ceil_div(tokens, group.page_tokens);
  if (group.window == 0) return all;
  return std::min(all, ceil_div(group.window, group.page_tokens) +
                           ceil_div(options.step_tokens_max, group.page_tokens) + 1);
}

bool fits_alone(const PolicyOptions& options, const std::vector<PolicyGroup>& groups,
                uint32_t tokens) {
  return std::all_of(groups.begin(), groups.end(), [&](const PolicyGroup& group) {
    return peak_pages(options, group, tokens) <= group.pages_capacity;
  });
}

std::vector<uint64_t> admit(const PolicyOptions& options, const PolicyState& state) {
  CHECK(state.groups.size() <= kGroupsMax);
  std::vector<const WaitingSequence*> order;
  for (const WaitingSequence& waiting : state.waiting) order.push_back(&waiting);
  std::sort(order.begin(), order.end(),
            [&](const auto* a, const auto* b) { return waits_before(options, *a, *b); });
  PageCounts promised{};
  for (uint32_t g = 0; g < state.groups.size(); ++g) {
    for (const RunningSequence& sequence : state.running) {
      promised[g] += debt(options, state.groups[g], g, sequence);
    }
  }
  std::vector<uint64_t> admitted;
  std::unordered_set<uint64_t> leading;
  size_t running = state.running.size();
  for (const WaitingSequence* waiting : order) {
    if (running >= options.sequences_max) break;
    if (waiting->leader_running) continue;
    if (waiting->next_page_key != 0 && leading.contains(waiting->next_page_key)) continue;
    const uint32_t tokens =
        promised_tokens(options, waiting->tokens, 0, waiting->output_tokens_left);
    PageCounts cost{};
    bool fits = true;
    for (uint32_t g = 0; g < state.groups.size(); ++g) {
      const PolicyGroup& group = state.groups[g];
      const uint32_t peak = peak_pages(options, group, tokens);
      const uint32_t shared = waiting->matched_tokens / group.page_tokens;
      // Pages of the match cost nothing when somebody else pins them already.
      const uint32_t held_by_others =
          std::min(peak, shared) - std::min({peak, shared, waiting->matched_unpinned[g]});
      cost[g] = peak - (group.window == 0 ? held_by_others : 0);
      if (running > 0) cost[g] += fork_pages(options, group, waiting->choices);
      fits = fits && cost[g] + promised[g] <= group.pages_available;
    }
    if (!fits) {
      if (waiting->waited_steps >= options.bypass_steps) break;
      continue;
    }
    for (uint32_t g = 0; g < state.groups.size(); ++g) promised[g] += cost[g];
    if (waiting->next_page_key != 0) leading.insert(waiting->next_page_key);
    admitted.push_back(waiting->id);
    ++running;
  }
  return admitted;
}

namespace {

// Where a turn ends just before a page is whole, all of that page is computed again.
bool turn_is_over(const RunningSequence& sequence, uint32_t slice, const PolicyState& state) {
  constexpr uint32_t kLittle = 3;
  const uint32_t patience = state.groups.empty() ? 0 : state.groups[0].page_tokens;
  const uint32_t enough = sequence.lost <= kLittle ? slice : slice + patience;
  return sequence.progress >= enough;
}

}  // namespace

Turn next_turn(const PolicyOptions& options, const PolicyState& state) {
  if (options.slice_tokens == 0 || state.waiting.empty()) return {};
  const uint32_t slice = std::max(options.slice_tokens, options.headroom_tokens);
  const size_t running = state.running.size();
  const size_t taking = options.turns_among > running ? options.turns_among - running : 0;
  const WaitingSequence* next = nullptr;
  for (size_t i = 0; i < std::min(state.waiting.size(), taking); ++i) {
    const WaitingSequence& waiting = state.waiting[i];
    if (waiting.leader_running) continue;
    if (waiting.swapped_out && waiting.waited_steps < slice) continue;
    const auto key = [](const WaitingSequence& w) {
      return std::tuple(w.priority, -int64_t{w.waited_steps}, w.id);
    };
    if (next == nullptr || key(waiting) < key(*next)) next = &waiting;
  }
  if (next == nullptr) return {};
  std::vector<const RunningSequence*> order;
  for (const RunningSequence& sequence : state.running) {
    const bool may_go =
        sequence.swappable && sequence.choices == 1 && sequence.priority >= next->priority;
    if (may_go && turn_is_over(sequence, slice, state)) order.push_back(&sequence);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tuple(a->progress, b->slot) > std::tuple(b->progress, a->slot);
  });
  PolicyState after = state;
  after.waiting = {*next};
  Turn turn;
  turn.admit = next->id;
  for (const RunningSequence* out : order) {
    turn.swap_out.push_back(out->slot);
    std::erase_if(after.running, [&](const auto& running) { return running.slot == out->slot; });
    for (uint32_t g = 0; g < after.groups.size(); ++g) {
      after.groups[g].pages_available += out->pages_held[g] + out->pages_loading[g];
    }
    if (!admit(options, after).empty()) return turn;
  }
  return {};
}

Plan plan(const PolicyOptions& options, const PolicyState& state) {
  CHECK(state.groups.size() <= kGroupsMax);
  Plan result;
  PageBudget budget(options, state);
  std::vector<const RunningSequence*> order;
  for (const RunningSequence& sequence : state.running) order.push_back(&sequence);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return serves_before(*a, *b); });
  std::vector<bool> given_up(order.size(), false);

  // Decodes first, in order of service. `last` walks the victims from the other end; who finds none
  // sits this step out, which is cheaper than being computed again.
  size_t last = order.size();
  uint32_t rows = 0;
  for (size_t i = 0; i < order.size() && rows < options.step_tokens_max; ++i) {
    const RunningSequence& sequence = *order[i];
    CHECK(sequence.tokens > sequence.written);
    if (given_up[i] || sequence.tokens - sequence.written != 1) continue;
    while (budget.room(sequence, 1) == 0 && last > i + 1) {
      --last;
      if (order[last]->progress < options.headroom_tokens) continue;
      given_up[last] = true;
      budget.give_back(*order[last]);
      result.preempt.push_back(order[last]->slot);
    }
    if (given_up[i] || budget.room(sequence, 1) == 0) continue;
    budget.take(sequence, 1);
    result.steps.push_back({sequence.slot, 1});
    ++rows;
  }

  uint32_t prefill = options.step_tokens_max - rows;
  if (rows > 0) prefill = std::min(prefill, options.mixed_prefill_max);
  for (size_t i = 0; i < order.size() && prefill > 0; ++i) {
    const RunningSequence& sequence = *order[i];
    const uint32_t end = std::min(sequence.tokens, sequence.compute_until);
    if (given_up[i] || sequence.tokens - sequence.written == 1) continue;
    const uint32_t rest = end - std::min(end, sequence.written);
    const uint32_t tokens = budget.room(sequence, std::min(rest, prefill));
    if (tokens == 0) continue;
    budget.take(sequence, tokens);
    result.steps.push_back({sequence.slot, tokens});
    prefill -= tokens;
  }
  return result;
}

}  // namespace spillway::scheduler
