// A sequence's life behind its admission: it forks, waits again for a place, gives its pages back,
// ends and leaves.
#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "scheduler/step_loop.h"

namespace spillway::scheduler {

std::vector<LiveSequence*> StepLoop::fork(LiveSequence& sequence) {
  LiveRequest& request = *sequence.request;
  std::vector<LiveSequence*> choices = {&sequence};
  const auto copy = [&](uint32_t group, kernels::PageId from, kernels::PageId to) {
    const size_t bytes = layouts_[group].page_bytes();
    std::byte* base = parts_.page_memory[group];
    // On the compute stream: ordered before the next step, which writes either page.
    copies_enqueued_ = true;
    parts_.device.compute().copy(base + static_cast<size_t>(to) * bytes,
                                 base + static_cast<size_t>(from) * bytes, bytes);
  };
  const uint32_t count = std::exchange(sequence.choices_to_fork, 1);
  for (uint32_t choice = 1; choice < count; ++choice) {
    auto sibling = std::make_unique<LiveSequence>();
    sibling->request = &request;
    sibling->choice = choice;
    sibling->tokens = sequence.tokens;
    sibling->text = make_text_stream(parts_.tokenizer, request.request);
    if (running_.size() < options_.sequences_max) {
      sibling->pages = parts_.cache.fork(*sequence.pages, copy);
    }
    if (sibling->pages != nullptr) {
      sibling->phase = Phase::kRunning;
      running_.push_back(sibling.get());
    }
    choices.push_back(sibling.get());
    request.sequences.push_back(std::move(sibling));
  }
  return choices;
}

void StepLoop::wait_again(LiveSequence& sequence) {
  const LiveRequest& request = *sequence.request;
  sequence.phase = Phase::kWaiting;
  sequence.waited_steps = 0;
  sequence.left_at = parts_.loop.clock().now();
  sequence.peek_version = ~uint64_t{0};
  sequence.keys =
      parts_.cache.keys(request.request.tenant, request.request.cache_salt, sequence.tokens);
  insert_waiting(sequence);
}

// Keeps waiting_ in the order of priority, then arrival.
void StepLoop::insert_waiting(LiveSequence& sequence) {
  const auto order = [](const LiveSequence* a, const LiveSequence* b) {
    return std::pair(a->request->request.priority, a->request->id) <
           std::pair(b->request->request.priority, b->request->id);
  };
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), &sequence, order), &sequence);
}

void StepLoop::preempt(LiveSequence& sequence) {
  CHECK(sequence.phase == Phase::kRunning);
  release_pages(sequence, false);
  std::erase(running_, &sequence);
  wait_again(sequence);
  ++sequence.request->usage.preemptions;
  ++counters_.preemptions;
}

void StepLoop::release_pages(LiveSequence& sequence, bool keep_for_session) {
  if (sequence.pages == nullptr) return;
  end_load(sequence);
  const Request& request = sequence.request->request;
  const bool keep = keep_for_session && sequence.choice == 0;
  if (keep) {
    hold_prefixes(sequence);
    remember_session(sequence);
  }
  keep_path(sequence, !keep_for_session);
  parts_.cache.release(std::move(sequence.pages), keep ? request.session : std::string());
  sequence.pages = nullptr;
}

void StepLoop::finish(LiveSequence& sequence) {
  CHECK(sequence.phase != Phase::kFinished);
  release_pages(sequence, true);
  sequence.phase = Phase::kFinished;
  CHECK(sequence.request->unfinished > 0);
  if (--sequence.request->unfinished == 0) ended_.push_back(sequence.request);
}

// REQUIRES: none of the request's sequences is in an enqueued step.
void StepLoop::finish_all(LiveRequest& request, FinishReason reason, const std::string& error) {
  for (auto& sequence : request.sequences) {
    if (sequence->phase == Phase::kFinished) continue;
    const uint32_t choices = sequence->choices_to_fork;
    for (uint32_t i = 0; i < choices; ++i) {
      finish_without_token(*sequence, reason, error, outbox_);
      ++sequence->choice;
    }
    sequence->choice -= choices;
    request.unfinished -= choices - 1;
    finish(*sequence);
  }
}

// What it has written to pages is not committed, so what they keep is whole. What else may be wrong
// with the device the next step shows.
void StepLoop::drop_step() {
  ++counters_.steps;
  for (LiveSequence* sequence : std::exchange(stepping_, {})) {
    if (sequence->under != nullptr) abandon_under_load(*sequence);
    // Once for a request with several choices in the step.
    finish_all(*sequence->request, FinishReason::kError, result_.failure);
  }
  sweep();
}

void StepLoop::sweep() {
  const auto finished = [](LiveSequence* s) { return s->phase == Phase::kFinished; };
  std::erase_if(running_, finished);
  std::erase_if(waiting_, finished);
  for (LiveRequest* request : ended_) {
    trace_.finished(*request);
    finish_request(*request, parts_.loop.clock().now(), outbox_);
    open_requests_.fetch_sub(1, std::memory_order_relaxed);
    requests_.erase(static_cast<uint64_t>(request->id));
  }
  ended_.clear();
}

}  // namespace spillway::scheduler
