// The step loop's admission: the picture of the state that the policy decides by, and what happens
// to a sequence that comes in.
#include <algorithm>

#include "scheduler/step_loop.h"

namespace spillway::scheduler {
namespace {

// Waiting sequences that one admission looks at: the first by priority and arrival, with this many
// a look into the cache for each costs well below a millisecond.
constexpr size_t kConsideredMax = 256;

}  // namespace

void StepLoop::admit_waiting() {
  if (waiting_.empty()) return;
  const std::vector<uint64_t> admitted = admit(policy_, picture());
  for (uint64_t index : admitted) start(*waiting_[index]);
  if (admitted.empty()) take_turns();
  std::erase_if(waiting_, [](LiveSequence* s) { return s->phase != Phase::kWaiting; });
  for (LiveSequence* sequence : waiting_) ++sequence->waited_steps;
}

void StepLoop::start(LiveSequence& sequence) {
  LiveRequest& request = *sequence.request;
  if (!request.admitted) {
    request.usage.first_divergence = parts_.cache.first_divergence(sequence.keys, sequence.tokens);
  }
  if (!request.request.session.empty()) cancel_prefetches(request.request.session);
  const bool may_match = request.may_match();
  sequence.pages = parts_.cache.begin(sequence.keys, sequence.tokens, may_match ? UINT32_MAX : 0);
  keep_breakpoints(sequence);
  const uint32_t found = sequence.pages->cached_tokens();
  sequence.phase = Phase::kRunning;
  sequence.progress = 0;
  running_.push_back(&sequence);
  if (may_match) {
    counters_.prefix_queries += sequence.tokens.size();
    counters_.prefix_hits += found;
  }
  if (!request.admitted) {
    request.admitted = true;
    trace_.waited(request, "queued", request.arrived);
    request.started = parts_.loop.clock().now();
    request.usage.cached_tokens = found;
    request.usage.matched_tokens = found;
    counters_.cached_tokens += found;
  } else if (sequence.choice == 0) {
    trace_.waited(request, "swapped out", sequence.left_at);
  }
  if (may_match) begin_load(sequence);
}

bool StepLoop::leader_runs(const LiveSequence& sequence) const {
  const uint64_t key = sequence.peek.next_page_key;
  const uint32_t page = sequence.peek.cached_tokens / parts_.cache.page_tokens();
  return std::any_of(running_.begin(), running_.end(), [&](const LiveSequence* other) {
    return page < other->keys.pages.size() && other->keys.pages[page].low == key &&
           other->pages->size() <= page * parts_.cache.page_tokens();
  });
}

// Tokens it may still draw.
uint32_t StepLoop::output_left(const LiveSequence& sequence) const {
  const uint32_t tokens = static_cast<uint32_t>(sequence.tokens.size());
  const uint32_t wanted = sequence.request->request.stop.max_tokens;
  const uint32_t drawn = sequence.request->outputs(sequence);
  return std::min(wanted - std::min(wanted, drawn),
                  options_.context_tokens_max - std::min(options_.context_tokens_max, tokens));
}

WaitingSequence StepLoop::picture_of(LiveSequence& sequence) {
  const LiveRequest& request = *sequence.request;
  WaitingSequence waiting;
  waiting.priority = request.request.priority;
  waiting.waited_steps = sequence.waited_steps;
  waiting.tokens = static_cast<uint32_t>(sequence.tokens.size());
  waiting.choices = sequence.choices_to_fork;
  waiting.output_tokens_left = output_left(sequence);
  waiting.swapped_out = options_.control_thrash && request.outputs(sequence) > 0;
  if (!request.may_match() || !options_.prefix_caching) return waiting;
  if (sequence.peek_version != parts_.cache.version()) {
    sequence.peek = parts_.cache.peek(sequence.keys, sequence.tokens);
    sequence.peek_version = parts_.cache.version();
  }
  waiting.matched_tokens = sequence.peek.cached_tokens;
  waiting.matched_unpinned = sequence.peek.unpinned;
  waiting.next_page_key = sequence.peek.next_page_key;
  waiting.leader_running = waiting.next_page_key != 0 && leader_runs(sequence);
  return waiting;
}

// What is held for the disk goes where streams would stop for want of a page.
cache::PageCounts StepLoop::pages_for_all() {
  cache::PageCounts available = parts_.cache.pages_available();
  if (parts_.tiers == nullptr || !parts_.tiers->holds_pages()) return available;
  const auto streams = std::count_if(running_.begin(), running_.end(), [](const auto* sequence) {
    return sequence->tokens.size() == sequence->pages->size() + 1;
  });
  const bool enough =
      std::all_of(available.begin(), available.begin() + layouts_.size(),
                  [streams](uint32_t pages) { return pages >= static_cast<uint32_t>(streams); });
  if (enough) return available;
  parts_.tiers->let_go_of_holds();
  return parts_.cache.pages_available();
}

PolicyState StepLoop::picture() {
  PolicyState state;
  const cache::PageCounts available = pages_for_all();
  const cache::KvCacheStats stats = parts_.cache.stats();
  for (size_t g = 0; g < layouts_.size(); ++g) {
    state.groups.push_back({.page_tokens = layouts_[g].page_tokens,
                            .window = layouts_[g].window,
                            .pages_capacity = stats.groups[g].capacity,
                            .pages_available = available[g]});
  }
  // Ids are indices: `waiting_` is in order of priority and arrival.
  for (size_t i = 0; i < std::min(waiting_.size(), kConsideredMax); ++i) {
    state.waiting.push_back(picture_of(*waiting_[i]));
    state.waiting.back().id = i;
  }
  for (Slot slot = 0; slot < running_.size(); ++slot) {
    const LiveSequence& sequence = *running_[slot];
    const LiveRequest& request = *sequence.request;
    state.running.push_back(
        {.id = static_cast<uint64_t>(request.id),
         .slot = slot,
         .priority = request.request.priority,
         .written = sequence.pages->size(),
         .tokens = static_cast<uint32_t>(sequence.tokens.size()),
         .compute_until = compute_until(*running_[slot]),
         .pages_held = sequence.pages->pages_held(),
         .pages_loading = sequence.load == nullptr ? PageCounts{} : sequence.load->pages_held(),
         .choices = sequence.choices_to_fork,
         .output_tokens_left = output_left(sequence),
         .progress = sequence.progress,
         .swappable = sequence.kept_tokens > 0,
         .lost = lost_by_swap(sequence)});
  }
  return state;
}

}  // namespace spillway::scheduler
