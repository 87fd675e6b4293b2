// Log-probabilities in the two forms of OpenAI's API.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "model/tokenizer.h"
#include "scheduler/request.h"

namespace spillway::server {

// A token for a person: its text, or "bytes:\xe2\x80" when it is part of a code point.
std::string token_label(const model::Tokenizer& tokenizer, model::TokenId token);

// chat: [{"token","logprob","bytes","top_logprobs":[...]}]
boost::json::array chat_logprobs(const model::Tokenizer& tokenizer,
                                 const std::vector<scheduler::OutputToken>& tokens);

// completions: parallel lists that grow as tokens arrive.
class CompletionLogprobs {
 public:
  // `text_offset` counts code points and starts at `offset`.
  explicit CompletionLogprobs(const model::Tokenizer& tokenizer, size_t offset = 0)
      : tokenizer_(&tokenizer), offset_(offset) {}

  // A prompt's first token has no log-probability: null.
  void add(const scheduler::OutputToken& token, bool has_logprob = true);
  // {"tokens","token_logprobs","top_logprobs","text_offset"} of what was added since the last take.
  boost::json::object take();

 private:
  const model::Tokenizer* tokenizer_;
  size_t offset_;
  boost::json::array tokens_, token_logprobs_, top_logprobs_, text_offset_;
};

}  // namespace spillway::server
