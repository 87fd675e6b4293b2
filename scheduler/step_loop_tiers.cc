// The step loop's dealings with the tiers below the device: what comes up for a sequence, and what
// is kept when its pages are given back.
#include <algorithm>
#include <chrono>

#include "scheduler/step_loop.h"

namespace spillway::scheduler {

// Every other sequence that has something to compute would wait for what this one computes.
double StepLoop::compute_price() const {
  const auto computing = std::count_if(running_.begin(), running_.end(),
                                       [this](const auto* s) { return !waits_for_load(*s); });
  return static_cast<double>(std::max<ptrdiff_t>(computing, 1));
}

void StepLoop::begin_load(LiveSequence& sequence) {
  if (parts_.tiers == nullptr) return;
  LiveRequest& request = *sequence.request;
  cache::Tiers& tiers = *parts_.tiers;
  if (request.usage.preemptions == 0 && !request.answered) {
    const uint32_t below = tiers.match_length(sequence.keys, sequence.tokens);
    request.usage.matched_tokens = std::max(below, sequence.pages->cached_tokens());
  }
  sequence.load =
      tiers.begin_load(sequence.keys, sequence.tokens, *sequence.pages, compute_price());
}

void StepLoop::advance_loads() {
  if (parts_.tiers == nullptr) return;
  for (LiveSequence* sequence : running_) {
    if (sequence->load == nullptr) continue;
    cache::Load& load = *sequence->load;
    const auto before = load.adopted;
    if (parts_.tiers->adopt(load, *sequence->pages, sequence->tokens)) {
      const uint32_t page_tokens = parts_.cache.page_tokens();
      const auto taken = [&](cache::Tier tier) {
        const auto index = static_cast<size_t>(tier);
        return (load.adopted[index] - before[index]) * page_tokens;
      };
      const uint32_t host = taken(cache::Tier::kHost), nvme = taken(cache::Tier::kNvme);
      counters_.prefix_hits += host + nvme;
      // As with what was on the device, only the first admission's counts for its client.
      Usage& usage = sequence->request->usage;
      if (usage.preemptions == 0 && !sequence->request->answered) {
        usage.host_tokens += host;
        usage.nvme_tokens += nvme;
        usage.cached_tokens += host + nvme;
        counters_.cached_tokens += host + nvme;
      }
    }
    if (parts_.tiers->finished(load)) end_load(*sequence);
  }
}

uint32_t StepLoop::compute_until(LiveSequence& sequence) {
  if (sequence.load == nullptr) return UINT32_MAX;
  const uint32_t size = sequence.pages->size();
  const uint32_t until = parts_.tiers->compute_until(*sequence.load, size, compute_price());
  const bool waits = until <= size;
  const Clock::TimePoint now = parts_.loop.clock().now();
  if (waits && !sequence.waits_since) sequence.waits_since = now;
  if (!waits && sequence.waits_since) {
    const auto waited = now - *std::exchange(sequence.waits_since, std::nullopt);
    sequence.request->usage.load_seconds += std::chrono::duration<double>(waited).count();
  }
  return until;
}

bool StepLoop::waits_for_load(const LiveSequence& sequence) const {
  return sequence.load != nullptr && sequence.waits_since.has_value();
}

void StepLoop::end_load(LiveSequence& sequence) {
  if (sequence.load == nullptr) return;
  parts_.tiers->give_up(std::exchange(sequence.load, nullptr));
  if (!sequence.waits_since) return;
  const auto waited =
      parts_.loop.clock().now() - *std::exchange(sequence.waits_since, std::nullopt);
  sequence.request->usage.load_seconds += std::chrono::duration<double>(waited).count();
}

// What the sequence has in whole pages goes down behind, so that it can come back.
void StepLoop::keep_path(const LiveSequence& sequence) {
  if (parts_.tiers == nullptr || !options_.prefix_caching || sequence.choice != 0) return;
  const Request& request = sequence.request->request;
  const uint32_t page_tokens = parts_.cache.page_tokens();
  const uint32_t whole = sequence.pages->size() / page_tokens * page_tokens;
  if (whole == 0) return;
  cache::KeptPath path;
  path.tokens.assign(sequence.tokens.begin(), sequence.tokens.begin() + whole);
  path.keys = parts_.cache.keys(request.tenant, request.cache_salt, path.tokens);
  path.session = !request.session.empty();
  parts_.tiers->keep(std::move(path));
}

// What the step tells of the rate of prefill: its rows and their time, at the position of the
// sequence that brought most of them.
void StepLoop::measure_step() {
  if (parts_.tiers == nullptr) return;
  uint32_t rows = 0, most = 0, position = 0;
  for (const LiveSequence* sequence : stepping_) {
    rows += sequence->step_tokens;
    if (sequence->step_tokens <= most) continue;
    most = sequence->step_tokens;
    position = sequence->pages->size();
  }
  const auto time = parts_.loop.clock().now() - step_began_;
  parts_.tiers->compute_rate().measured(position, rows,
                                        std::chrono::duration<double>(time).count());
}

}  // namespace spillway::scheduler
