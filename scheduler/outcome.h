// From drawn tokens to what clients get: applies the stop rules, turns tokens into text, and keeps
// the outputs of a step together until they may be delivered. Engine thread only.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/sampling.h"
#include "model/tokenizer.h"
#include "scheduler/live.h"

namespace spillway::scheduler {

// Outputs of one step, delivered after the next step was started: what clients do with them is off
// the critical path.
class Outbox {
 public:
  void add(const LiveRequest& request, Output output) {
    outputs_.emplace_back(request.sink, std::move(output));
  }
  void deliver();
  bool empty() const { return outputs_.empty(); }

 private:
  std::vector<std::pair<std::shared_ptr<OutputSink>, Output>> outputs_;
};

// Text stream of a sequence as its request asks for it.
std::unique_ptr<model::TextStream> make_text_stream(const model::Tokenizer& tokenizer,
                                                    const Request& request);

// What the tokens of end and stop are until min_tokens is reached.
std::vector<model::TokenId> banned_tokens(const model::Tokenizer& tokenizer,
                                          const Request& request);

// Appends a drawn token to the sequence and tells the client. Returns why the sequence ends with
// it, or nothing. `context_tokens_max` ends it with kLength.
std::optional<FinishReason> take_token(const model::Tokenizer& tokenizer, LiveSequence& sequence,
                                       const model::SampleResult& sample,
                                       uint32_t context_tokens_max, Outbox& outbox);

// The last word on a sequence that ends without a further token: cancelled, expired, or of a
// request that asked for none, or, as `error` tells a person then, of one that failed.
void finish_without_token(LiveSequence& sequence, FinishReason reason, const std::string& error,
                          Outbox& outbox);

// The last word on a request whose choices have all ended.
void finish_request(LiveRequest& request, Clock::TimePoint now, Outbox& outbox);

}  // namespace spillway::scheduler
