// How requests go that wait for their first token, told to those who want to know.
#include <algorithm>

#include "scheduler/step_loop.h"

namespace spillway::scheduler {

void StepLoop::wants_reports(LiveRequest& request) {
  if (!request.request.report_waiting) return;
  request.report_at = request.arrived + kFirstReport;
  report_at_ = std::min(report_at_, request.report_at);
}

// Between steps; costs a look at the clock while none is due.
void StepLoop::report_waiting() {
  const Clock::TimePoint now = parts_.loop.clock().now();
  if (now < report_at_) return;
  report_at_ = Clock::TimePoint::max();
  for (auto& [id, request] : requests_) {
    if (!request->request.report_waiting || request->answered) continue;
    if (request->report_at <= now) {
      Output output;
      output.request = request->id;
      output.waiting = waiting_of(*request);
      outbox_.add(*request, std::move(output));
      request->report_at = now + kReportEvery;
    }
    report_at_ = std::min(report_at_, request->report_at);
  }
}

Waiting StepLoop::waiting_of(const LiveRequest& request) const {
  const LiveSequence& first = *request.sequences.front();
  Waiting waiting;
  waiting.prompt_tokens = request.prompt_tokens();
  waiting.seconds =
      std::chrono::duration<double>(parts_.loop.clock().now() - request.arrived).count();
  if (first.pages == nullptr) {
    const auto place = std::find(waiting_.begin(), waiting_.end(), &first);
    waiting.before = static_cast<uint32_t>(place - waiting_.begin());
    waiting.matched_tokens = parts_.cache.match_length(first.keys, first.tokens);
    if (parts_.tiers != nullptr) {
      waiting.matched_tokens =
          parts_.tiers->match_length(first.keys, first.tokens, waiting.matched_tokens);
    }
    return waiting;
  }
  const Usage& usage = request.usage;
  waiting.state = waits_for_load(first) ? WaitState::kLoading : WaitState::kComputing;
  waiting.matched_tokens = usage.matched_tokens;
  waiting.host_tokens = usage.host_tokens;
  waiting.nvme_tokens = usage.nvme_tokens;
  waiting.device_tokens = usage.cached_tokens - usage.host_tokens - usage.nvme_tokens;
  const uint32_t there = std::min(first.pages->size(), waiting.prompt_tokens);
  waiting.computed_tokens = there - std::min(there, usage.cached_tokens);
  if (first.load == nullptr) return waiting;
  const auto coming = first.load->coming();
  const uint32_t page_tokens = parts_.cache.page_tokens();
  waiting.host_tokens_left = coming[static_cast<size_t>(cache::Tier::kHost)] * page_tokens;
  waiting.nvme_tokens_left = coming[static_cast<size_t>(cache::Tier::kNvme)] * page_tokens;
  return waiting;
}

}  // namespace spillway::scheduler
