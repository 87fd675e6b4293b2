#include "scheduler/step_trace.h"

#include <utility>

namespace spillway::scheduler {

void StepTrace::engine(const char* name) {
  if (!on()) return;
  const Clock::TimePoint now = loop_.clock().now();
  if (marked_ != Clock::TimePoint{}) {
    loop_.trace().add({.name = name, .lane = TraceLane::kEngine, .begin = marked_, .end = now});
  }
  marked_ = now;
}

void StepTrace::step(const StepPicture& picture, const model::StepBatch& batch,
                     const model::StepResult& result) {
  if (!on() || !batch.stamped) return;
  int64_t decodes = 0, prefill_rows = 0;
  for (const model::SequenceStep& sequence : batch.sequences) {
    const auto rows = static_cast<int64_t>(sequence.tokens.size());
    (rows == 1 ? decodes : prefill_rows) += rows;
  }
  marked_ = loop_.clock().now();
  loop_.trace().add({.name = prefill_rows == 0 ? "decode"
                             : decodes == 0    ? "prefill"
                                               : "mixed",
                     .lane = TraceLane::kSteps,
                     .begin = picture.began,
                     .end = marked_,
                     .arguments = {{{"step", static_cast<int64_t>(picture.number)},
                                    {"decoding", decodes},
                                    {"prefill_tokens", prefill_rows},
                                    {"running", static_cast<int64_t>(picture.running)},
                                    {"waiting", static_cast<int64_t>(picture.waiting)}}}});
  layers(result);
}

// Place 0 of a tile is its beginning; each later place ends where its layer does.
void StepTrace::layers(const model::StepResult& result) {
  for (size_t i = 1; i < result.stamps.size(); ++i) {
    const model::StepStamp& stamp = result.stamps[i];
    if (stamp.place == 0) continue;
    TraceEvent event{.name = stamp.place == model::StepStamp::kSampled ? "logits" : "layer",
                     .lane = TraceLane::kCompute,
                     .begin = result.stamps[i - 1].at,
                     .end = stamp.at};
    if (stamp.place != model::StepStamp::kSampled) {
      event.arguments[0] = {"layer", int64_t{stamp.place} - 1};
    }
    loop_.trace().add(event);
  }
}

void StepTrace::evicted(uint64_t pages_in_all) {
  const uint64_t pages = pages_in_all - std::exchange(evicted_, pages_in_all);
  if (!on() || pages == 0) return;
  loop_.trace().add({.name = "evicted from the device",
                     .lane = TraceLane::kEngine,
                     .moment = true,
                     .end = loop_.clock().now(),
                     .arguments = {{{"pages", static_cast<int64_t>(pages)}}}});
}

TraceEvent StepTrace::span(const LiveRequest& request, const char* name, Clock::TimePoint since) {
  const Usage& usage = request.usage;
  return {.name = name,
          .lane = TraceLane::kRequests,
          .tenant = number_of(request.request.tenant),
          .id = static_cast<uint64_t>(request.id),
          .begin = since,
          .end = loop_.clock().now(),
          .arguments = {{{"prompt_tokens", usage.prompt_tokens},
                         {"cached", usage.cached_tokens},
                         {"of_these_host", usage.host_tokens},
                         {"of_these_nvme", usage.nvme_tokens},
                         {"generated", usage.completion_tokens}}}};
}

uint32_t StepTrace::number_of(const std::string& tenant) {
  return tenants_.try_emplace(tenant, static_cast<uint32_t>(tenants_.size())).first->second;
}

void StepTrace::keep_own(TraceSnapshot& snapshot, const std::string& tenant) {
  spillway::keep_own(snapshot, number_of(tenant));
}

void StepTrace::waited(const LiveRequest& request, const char* name, Clock::TimePoint since) {
  if (on()) loop_.trace().add(span(request, name, since));
}

void StepTrace::add_phase(const LiveRequest& request, TraceSnapshot* to) {
  if (!on()) return;
  const TraceEvent event = !request.admitted   ? span(request, "queued", request.arrived)
                           : !request.answered ? span(request, "prefill", request.started)
                                               : span(request, "decode", request.first_token);
  if (to == nullptr) return loop_.trace().add(event);
  to->events.push_back(event);
}

void StepTrace::add_open(const LiveRequest& request, TraceSnapshot& to) {
  const LiveSequence& first = *request.sequences.front();
  if (first.waits_since) to.events.push_back(span(request, "load", *first.waits_since));
  const bool out = first.phase == Phase::kWaiting && request.admitted;
  if (out) to.events.push_back(span(request, "swapped out", first.left_at));
  add_phase(request, &to);  // last: it ends after what is inside it
}

}  // namespace spillway::scheduler
