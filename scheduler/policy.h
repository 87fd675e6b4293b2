// Who runs next: pure functions from a picture of the scheduler's state to what starts now and what
// the next step computes. No clock, no I/O, no cache: the engine fills the picture in and carries
// the plan out.
//
// Order of service: priority (lower first), then longest cached prefix with ageing. Each step
// waited is worth `ageing_tokens` of matched prefix, so a newcomer overtakes an older request by
// at most matched/ageing_tokens steps and nobody starves.
//
// Memory: a sequence is admitted when the pages for its whole prompt and for `headroom_tokens` of
// output are free once every running sequence has been left the same. So each admission is worth
// at least that much progress before it can be preempted (case K16), and a prefill never stops
// halfway for want of pages. When pages run out all the same (long outputs), the sequence last in
// order of service is preempted, and only after it made its progress.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace spillway::scheduler {

inline constexpr uint32_t kGroupsMax = 2;  // layer groups of one model: full, window

struct PolicyOptions {
  uint32_t sequences_max = 256;
  uint32_t step_tokens_max = 512;    // rows in one step
  uint32_t mixed_prefill_max = 256;  // prefill rows in a step that also decodes (bounds TPOT)
  uint32_t ageing_tokens = 64;
  uint32_t headroom_tokens = 32;
  uint32_t slice_tokens = 0;  // turns: tokens of progress before one may be swapped out; 0: none
  uint32_t turns_among = UINT32_MAX;  // turns: what runs and who waits first, so many in all
  uint32_t bypass_steps = 128;  // a request waiting longer is no longer overtaken by smaller ones
};

struct PolicyGroup {
  uint32_t page_tokens = 16;
  uint32_t window = 0;  // tokens; 0: full attention
  uint32_t pages_capacity = 0;
  uint32_t pages_available = 0;  // free, or sealed and evictable
};

using PageCounts = std::array<uint32_t, kGroupsMax>;

struct WaitingSequence {
  uint64_t id = 0;  // also the order of arrival
  int32_t priority = 0;
  uint32_t waited_steps = 0;
  uint32_t tokens = 0;              // to be in the cache before the next token is drawn
  uint32_t matched_tokens = 0;      // of these, found in the cache now
  PageCounts matched_unpinned{};    // evictable pages among the match: admission takes them out
  uint32_t choices = 1;             // sequences after the prompt (n)
  uint32_t output_tokens_left = 0;  // of each choice
  bool swapped_out = false;         // it ran before
  // Key of the first page that is not cached, 0 for none. Of two with the same key only one is
  // admitted: the other waits for its pages.
  uint64_t next_page_key = 0;
  bool leader_running = false;  // a running sequence is computing that page
};

struct RunningSequence {
  uint64_t id = 0;    // that of the request; choices of one request share it
  uint32_t slot = 0;  // the engine's own index
  int32_t priority = 0;
  uint32_t written = 0;  // tokens whose KV is in pages
  uint32_t tokens = 0;   // tokens known; tokens - written are to be computed (1: decode)
  // Tokens up to which it may compute now: pages after them are being loaded. It waits when that is
  // no more than `written`.
  uint32_t compute_until = UINT32_MAX;
  PageCounts pages_held{};
  PageCounts pages_loading{};  // set aside for what is being loaded
  uint32_t choices = 1;        // still to fork into
  uint32_t output_tokens_left = 0;
  uint32_t progress = 0;   // tokens drawn since it was admitted last
  bool swappable = false;  // its pages are kept below the device
  uint32_t lost = 0;       // tokens that it would compute again if it were swapped out now
};

struct PolicyState {
  std::vector<PolicyGroup> groups;
  std::vector<WaitingSequence> waiting;  // in order of priority, then of arrival
  std::vector<RunningSequence> running;
};

struct PlannedStep {
  uint32_t slot = 0;
  uint32_t tokens = 0;  // at least 1
};

struct Plan {
  std::vector<uint32_t> preempt;   // slots to give up before the steps run
  std::vector<PlannedStep> steps;  // slots of running sequences, each at most once
};

// Pages that hold tokens [0, tokens) of a sequence of which [0, written) are behind it: with a
// window, pages that no query at or after `written` sees are not counted.
uint32_t pages_for(const PolicyGroup& group, uint32_t written, uint32_t tokens);

// Most pages of the group that a sequence growing to `tokens` tokens ever holds at once, chunks of
// step_tokens_max included.
uint32_t peak_pages(const PolicyOptions& options, const PolicyGroup& group, uint32_t tokens);

// Whether a sequence of `tokens` tokens in all could run in an empty cache.
bool fits_alone(const PolicyOptions& options, const std::vector<PolicyGroup>& groups,
                uint32_t tokens);

// Waiting ids to start now, in this order. If pages suffice for the first in order of service, or
// nothing runs, the result is not empty unless all wait for a leader.
std::vector<uint64_t> admit(const PolicyOptions& options, const PolicyState& state);

// More streams than the pages hold take turns: who comes in for whom.
struct Turn {
  uint64_t admit = 0;              // waiting id
  std::vector<uint32_t> swap_out;  // slots of running sequences; empty: nobody's turn ends
};

// When nobody can be admitted: the sequence that waited longest comes in for those that have run
// longest, each for at least slice_tokens (and headroom_tokens, case K16) since it was admitted,
// and for up to a page more until little of it is lost. Who was swapped out stays so for at least
// as many steps: with one stream too many there is one swap a slice, not one for each that runs.
// Beyond turns_among (thrashing) a stream waits until others have ended.
Turn next_turn(const PolicyOptions& options, const PolicyState& state);

// The next step of what runs.
Plan plan(const PolicyOptions& options, const PolicyState& state);

}  // namespace spillway::scheduler
