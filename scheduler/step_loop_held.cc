// The step loop's dealings with what clients want to be kept: static parts of prompts, and pins.
#include <algorithm>

#include "scheduler/step_loop.h"

namespace spillway::scheduler {

// For who finds something between two commands: the loop goes round once more.
void StepLoop::look_again() {
  if (idle_ && inbox_.try_push(TierProgressCommand{})) idle_ = false;
}

// A pin for which there is no room is refused before anything is computed for it.
void StepLoop::decide_pin(LiveRequest& request) {
  if (!request.request.pin) return;
  const PinOutcome outcome = held_.look_for_room(request.request);
  if (outcome.result == PinResult::kPinned) return;
  request.pin = outcome;
  request.cancelled = true;
}

// REQUIRES: it has just begun.
void StepLoop::keep_breakpoints(LiveSequence& sequence) {
  LiveRequest& request = *sequence.request;
  const uint32_t page_tokens = parts_.cache.page_tokens();
  for (const Breakpoint& breakpoint : request.request.breakpoints) {
    if (!request.admitted) {
      request.usage.static_tokens = breakpoint.tokens / page_tokens * page_tokens;
    }
    if (breakpoint.tokens < sequence.pages->size()) continue;
    parts_.cache.keep_breakpoint(*sequence.pages, breakpoint.tokens);
  }
}

// What the sequence has computed of static parts, and of what is to be pinned, is kept from here
// on. REQUIRES: its pages are still its own.
void StepLoop::hold_prefixes(LiveSequence& sequence) {
  LiveRequest& request = *sequence.request;
  const uint32_t size = sequence.pages->size();
  held_.hold_statics(request.request, sequence.keys, size);
  held_.hold_chain(request.request, sequence.tokens, size);
  if (request.request.pin && !request.pin && size >= request.prompt_tokens()) {
    request.pin = held_.pin(request.request);
  }
  held_.renew();
}

void StepLoop::list_pins(ListPinsCommand command) {
  held_.expire();
  command.then(held_.list(command.tenant));
}

void StepLoop::unpin(UnpinCommand command) {
  held_.expire();
  command.then(held_.unpin(command.tenant, command.id));
}

void StepLoop::publish_held() {
  counters_.pins = held_.pins();
  counters_.pinned_pages = held_.pinned_pages();
  counters_.pinned_pages_max = held_.pinned_pages_max();
  counters_.static_parts = held_.statics();
}

}  // namespace spillway::scheduler
