// One step of a model over a batch of sequences: the seam between the scheduler and what computes.
// The transformer (transformer.h) and that of a GPU (gpu_transformer.h) implement it; the
// simulation's fake model does too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/paged_kv.h"
#include "model/sampling.h"
#include "model/token.h"
#include "runtime/clock.h"
#include "runtime/result.h"

namespace spillway::model {

// One sequence's part of a step: `tokens` are appended at absolute positions `position`, ...
// Their K and V are written to the pages of `tables`, then each attends to all before it.
struct SequenceStep {
  std::span<const TokenId> tokens;  // at least one
  uint32_t position = 0;
  // Per layer group, the block table up to and including the page of the last token.
  std::vector<std::span<const kernels::PageId>> tables;
  std::vector<SampleRequest> samples;  // rows whose logits are wanted, ascending
};

struct StepBatch {
  std::vector<SequenceStep> sequences;
  bool stamped = false;  // the result has stamps
  // Where some KV before the step is still on its way into the pages: (group) a gate at the count
  // of the group's layers that are there, of which the first are there first. Empty: all is there.
  // Behind a gate that was abandoned the results mean nothing, and nobody looks at them.
  std::vector<const kernels::Gate*> layers_there;
};

// When a step that runs got to a place, by the clock of one worker. A step's rows may pass the
// places in several tiles, one after the other.
struct StepStamp {
  static constexpr uint32_t kSampled = UINT32_MAX;
  uint32_t place = 0;  // 0: a tile begins; i + 1: layer i has ended; kSampled: all is drawn
  Clock::TimePoint at;
};

struct StepResult {
  // (sequence, sample), as asked for in the batch. Valid once collect() has returned.
  std::vector<std::vector<SampleResult>> samples;
  std::vector<StepStamp> stamps;  // in order; empty where the runner has none to give
  // Not empty: what failed on the device, for a person. The step then has come to nothing: its
  // samples mean nothing, and neither does what it wrote to its pages.
  std::string failure;
};

struct RunnerShape {
  uint32_t vocabulary = 0;
  uint32_t context_tokens_max = 0;             // trained context length
  std::vector<kernels::KvGroupLayout> groups;  // at least one; group 0 is full attention if any
  bool pages_by_layer = true;                  // a page's bytes are in the order of layers
  std::string fingerprint;  // weights, tokenizer, rope, KV format and layout, arithmetic (hex)
};

class Runner {
 public:
  virtual ~Runner() = default;
  virtual const RunnerShape& shape() const = 0;
  // The page memory of each group, set once before the first step: base[g] + id * page_bytes.
  virtual void bind_pages(std::vector<std::byte*> base) = 0;
  // Most rows (tokens) one step may carry.
  virtual uint32_t batch_tokens_max() const = 0;
  // Rows that pass the layers together; those of a larger step do so one such part after another.
  virtual uint32_t rows_together_max() const = 0;
  // Enqueues the step on the device's compute stream. `batch`, what it points to, and `result` must
  // stay until an event recorded after this call is done and collect() has been called. Does not
  // suspend.
  virtual void enqueue(const StepBatch& batch, StepResult& result) = 0;
  // Of a step behind gates enqueue() may keep a part back, for a stream takes only so much behind a
  // gate that is shut before it blocks who enqueues, and that is who opens it. True: more of the
  // step was enqueued now; call again once an event recorded after this call is done. False: all
  // was.
  virtual bool enqueue_rest() { return false; }
  // Makes the result whole, once such an event is done: what is left to do on the host, on the
  // engine's thread. With the arguments of enqueue(), once for each step, in their order.
  virtual void collect(const StepBatch& batch, StepResult& result) = 0;
  // The engine's device has ended (Device::failure()): puts a fresh one in its place, or in that of
  // each part of it that has, and loads onto it what it needs to go on as before, to the bit. What
  // pages held is lost: bind_pages() follows. Takes as long as a start, on any one thread that
  // alone uses runner and device meanwhile, and behind an event of the device after which nothing
  // was enqueued. Gives what was done, for a person. An error: there is none now; it may be asked
  // again, and until then the device is not used.
  virtual Result<std::string> rebuild() {
    return Error{ErrorCode::kUnsupported, "nothing can take the place of a device that has ended"};
  }
};

}  // namespace spillway::model
