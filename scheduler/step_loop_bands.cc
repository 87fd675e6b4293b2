// A sequence's first step under its load (cache/tier_bands.cc): it computes what follows its prefix
// while the prefix's later layers still come. Alone in its step, one at a time, and as if it had
// not been where they fail to come.
#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "scheduler/step_loop.h"

namespace spillway::scheduler {

// Where all that run wait for their loads, the first of them that had better compute now stands in
// the picture as if it had its prefix. Null: none. With anybody else to compute there is none: that
// one's tokens would wait for a disk.
LiveSequence* StepLoop::offer_under_load(PolicyState& state) const {
  if (parts_.tiers == nullptr) return nullptr;
  const bool alone = std::all_of(running_.begin(), running_.end(),
                                 [this](const auto* s) { return waits_for_load(*s); });
  if (!alone) return nullptr;
  for (RunningSequence& running : state.running) {
    LiveSequence& sequence = *running_[running.slot];
    const uint32_t end = sequence.load->end() * parts_.cache.page_tokens();
    const uint32_t rows = parts_.tiers->rows_under(running.tokens - end);
    if (!parts_.tiers->may_run_under(*sequence.load, *sequence.pages, rows)) continue;
    running.written = end;
    running.compute_until = end + rows;
    for (uint32_t g = 0; g < kGroupsMax; ++g) running.pages_held[g] += running.pages_loading[g];
    running.pages_loading = {};
    return &sequence;
  }
  return nullptr;
}

// False: there is no room for the pages of so many rows.
bool StepLoop::begin_under_load(LiveSequence& sequence, uint32_t rows) {
  sequence.under = parts_.tiers->begin_step_under(sequence.load, *sequence.pages, rows);
  if (sequence.under == nullptr) return false;
  end_wait(sequence);
  for (uint32_t g = 0; g < layouts_.size(); ++g) {
    batch_.layers_there.push_back(sequence.under->gates[g].get());
  }
  return true;
}

// The step has ended. False: its outcome is none.
bool StepLoop::end_under_load(LiveSequence& sequence) {
  const auto under = std::exchange(sequence.under, nullptr);
  const bool good = adopt(sequence, [&] {
    return parts_.tiers->end_step_under(*sequence.load, *sequence.pages, sequence.tokens);
  });
  if (!good) return false;
  CHECK(parts_.tiers->finished(*sequence.load));
  end_load(sequence);
  return true;
}

// The step failed: what its gates still held back ran over layers that are not there.
void StepLoop::abandon_under_load(LiveSequence& sequence) {
  for (const auto& gate : sequence.under->gates) {
    if (gate != nullptr) gate->abandon();
  }
  const bool taken = end_under_load(sequence);
  CHECK(!taken);
}

}  // namespace spillway::scheduler
