// What a client asks of the engine, and what comes back.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/sampling.h"
#include "model/token.h"
#include "scheduler/pins.h"

namespace spillway::scheduler {

enum class RequestId : uint64_t {};

struct StopRules {
  uint32_t max_tokens = 0;  // 0: prefill only (cache warm-up, prompt log-probabilities)
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  bool include_stop_string = false;
  std::vector<model::TokenId> stop_tokens;
  std::vector<std::string> stop_strings;
};

// The end of a static part of the prompt: pages before it are worth keeping.
struct Breakpoint {
  uint32_t tokens = 0;         // of the prompt; counts from the page boundary at or before it
  std::chrono::seconds ttl{};  // that its pages are held at least, once they are computed
};

struct Request {
  std::string client_id;               // for logs: "chatcmpl-..."
  std::vector<model::TokenId> prompt;  // at least one token
  model::SamplingParams sampling;
  StopRules stop;
  uint32_t choices = 1;
  std::optional<uint32_t> logprobs;         // per output token, with this many top ones
  std::optional<uint32_t> prompt_logprobs;  // per prompt token; computed, never from cached pages
  bool show_control = false;                // text of control tokens in the output
  int32_t priority = 0;                     // lower runs earlier, as in vLLM
  std::string tenant;                       // isolates the cache, with cache_salt
  std::string cache_salt;
  std::string session;  // not empty: keeps a soft lease on the path until end_session()
  // Not empty: names a conversation that may go on without a connection (stored responses). Its
  // path is held for a while, in place of what the name had.
  std::string chain;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::vector<Breakpoint> breakpoints;  // ascending
  // Only what lies before the last breakpoint is kept below the device. Without any breakpoint
  // nothing is, and nothing is taken from the cache.
  bool explicit_breakpoints = false;
  bool report_waiting = false;  // tell now and then how it goes until the first token
  std::optional<PinOrder> pin;  // REQUIRES: stop.max_tokens 0
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kDeadline, kError };

struct OutputToken {
  model::TokenId token = -1;
  float logprob = 0.0f;
  std::vector<model::TokenLogprob> top;
};

struct Usage {
  uint32_t prompt_tokens = 0;
  // Prompt tokens whose KV came from the cache, never more than prompt - 1; and of these, those
  // that came up from a lower tier. The rest was on the device.
  uint32_t cached_tokens = 0;
  uint32_t host_tokens = 0, nvme_tokens = 0;
  uint32_t matched_tokens = 0;   // found in any tier when it was admitted, loaded or not
  uint32_t static_tokens = 0;    // up to the last breakpoint, in whole pages
  uint32_t computed_tokens = 0;  // prompt tokens computed, recomputation after preemption included
  uint32_t completion_tokens = 0;  // over all choices
  uint32_t preemptions = 0;
  // Where the prompt left a path that the cache held: the first token that differs from it.
  std::optional<uint32_t> first_divergence;
  double load_seconds = 0;  // that it waited for pages without computing
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
};

// What is told of a request that waits for its first token.
enum class WaitState : uint8_t { kQueued, kLoading, kComputing };
struct Waiting {
  WaitState state = WaitState::kQueued;
  uint32_t before = 0;  // requests in the queue before it
  uint32_t prompt_tokens = 0;
  uint32_t matched_tokens = 0;  // found in any tier
  // Of the prompt, what is there by now and where it came from, and what is still coming up.
  uint32_t device_tokens = 0, host_tokens = 0, nvme_tokens = 0, computed_tokens = 0;
  uint32_t host_tokens_left = 0, nvme_tokens_left = 0;
  double seconds = 0;  // since it arrived
};

// One message to the client's side, in order. `choice` events come per choice; `done` is the last
// of all and comes exactly once for each accepted request.
struct Output {
  RequestId request{};
  uint32_t choice = 0;
  std::string text;                        // may be empty while text is held back
  std::vector<OutputToken> tokens;         // tokens this output adds (log-probabilities if asked)
  std::optional<FinishReason> finish;      // of this choice
  std::optional<std::string> stop_string;  // which one ended it
  std::vector<OutputToken> prompt_tokens;  // prompt log-probabilities, once, before any token
  bool done = false;                       // of the request; usage is final
  std::string error;                       // with kError: for a person
  std::optional<Waiting> waiting;          // then nothing else is told
  std::optional<PinOutcome> pin;           // when done, of a request with a pin
  Usage usage;                             // filled with the first token and when done
};

// Receives outputs on the engine thread. Must not block: post it on to your own thread.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void on_output(Output output) = 0;
};

}  // namespace spillway::scheduler
