// What the step loop knows of a request and of each of its sequences. Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/load.h"
#include "model/text_stream.h"
#include "runtime/clock.h"
#include "scheduler/request.h"

namespace spillway::scheduler {

struct LiveRequest;

enum class Phase : uint8_t { kWaiting, kRunning, kFinished };

// One choice of a request: its tokens, and its pages while it runs. The first sequence of a request
// stands for all choices until the prompt is computed, then forks.
struct LiveSequence {
  LiveRequest* request = nullptr;  // owns this
  uint32_t choice = 0;
  uint32_t choices_to_fork = 1;  // itself included
  Phase phase = Phase::kWaiting;
  std::vector<model::TokenId> tokens;      // prompt, then output; not changed while a step runs
  cache::PromptKeys keys;                  // of `tokens` when it last began to wait
  std::unique_ptr<cache::Sequence> pages;  // while running
  std::shared_ptr<cache::Load> load;       // what is coming up for it from lower tiers
  std::shared_ptr<cache::StepUnderLoad> under;  // while its step runs before the load has ended
  std::unique_ptr<model::TextStream> text;
  uint32_t progress = 0;                        // tokens drawn since it was admitted last
  uint32_t waited_steps = 0;                    // since it began to wait
  uint32_t kept_tokens = 0;                     // of its path, handed down to the lower tiers
  uint32_t step_tokens = 0;                     // rows in the step that runs
  bool replayed = false;                        // the device that had its pages has ended
  std::optional<Clock::TimePoint> waits_since;  // for its load, computing nothing
  Clock::TimePoint left_at{};                   // it gave its pages back and began to wait again
  cache::Peek peek;  // what waits for it in the cache, as of `peek_version`
  uint64_t peek_version = ~uint64_t{0};
};

struct LiveRequest {
  RequestId id{};
  Request request;
  std::shared_ptr<OutputSink> sink;
  std::vector<std::unique_ptr<LiveSequence>> sequences;
  std::vector<model::TokenId> banned;      // what min_tokens forbids until it is reached
  std::vector<OutputToken> prompt_scores;  // [position], if prompt_logprobs
  uint32_t unfinished = 1;                 // choices
  bool admitted = false;
  bool cancelled = false;
  bool answered = false;      // the first token was delivered
  uint32_t losses = 0;        // steps with it that the device did not survive
  uint64_t lost_in_step = 0;  // the last of them
  Usage usage;
  std::optional<PinOutcome> pin;  // if one was asked for, and decided
  Clock::TimePoint arrived{}, started{}, first_token{};
  Clock::TimePoint report_at{};  // how it goes, if that is wanted

  uint32_t prompt_tokens() const { return static_cast<uint32_t>(request.prompt.size()); }
  uint32_t outputs(const LiveSequence& sequence) const {
    return static_cast<uint32_t>(sequence.tokens.size()) - prompt_tokens();
  }
  // Whether the prompt's log-probabilities are still to be computed.
  bool wants_scores() const { return request.prompt_logprobs && !answered; }
  // Whether pages may come from the cache. Scores are computed; and who marks nothing as static in
  // explicit mode wants none.
  bool may_match() const {
    const bool wants_none = request.explicit_breakpoints && request.breakpoints.empty();
    return !wants_scores() && (admitted || !wants_none);  // its own, swapped out, may come back
  }
};

}  // namespace spillway::scheduler
