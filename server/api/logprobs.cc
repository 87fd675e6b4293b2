#include "server/api/logprobs.h"

#include <algorithm>
#include <boost/json.hpp>

#include "server/api/utf8.h"

namespace spillway::server {
namespace {

namespace json = boost::json;

// JSON has no -inf; this is what OpenAI and vLLM send for an impossible token.
double finite(float logprob) { return logprob > -9999.0f ? double(logprob) : -9999.0; }

json::object describe(const model::Tokenizer& tokenizer, model::TokenId token, float logprob) {
  json::array bytes;
  for (const char c : tokenizer.piece(token, true)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_label(tokenizer, token)},
          {"logprob", finite(logprob)},
          {"bytes", std::move(bytes)}};
}

}  // namespace

std::string token_label(const model::Tokenizer& tokenizer, model::TokenId token) {
  const std::string_view piece = tokenizer.piece(token, true);
  if (is_utf8(piece)) return std::string(piece);
  constexpr char kHex[] = "0123456789abcdef";
  std::string label = "bytes:";
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    label += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
  }
  return label;
}

json::array chat_logprobs(const model::Tokenizer& tokenizer,
                          const std::vector<scheduler::OutputToken>& tokens) {
  json::array out;
  for (const scheduler::OutputToken& token : tokens) {
    json::object entry = describe(tokenizer, token.token, token.logprob);
    json::array top;
    for (const model::TokenLogprob& other : token.top) {
      top.push_back(describe(tokenizer, other.token, other.logprob));
    }
    entry["top_logprobs"] = std::move(top);
    out.push_back(std::move(entry));
  }
  return out;
}

void CompletionLogprobs::add(const scheduler::OutputToken& token, bool has_logprob) {
  tokens_.push_back(json::string(token_label(*tokenizer_, token.token)));
  text_offset_.push_back(offset_);
  offset_ += utf8_count(tokenizer_->piece(token.token, true));
  if (!has_logprob) {
    token_logprobs_.push_back(nullptr);
    top_logprobs_.push_back(nullptr);
    return;
  }
  token_logprobs_.push_back(finite(token.logprob));
  json::object top;  // two ids may share a text: the likelier one keeps it
  for (const model::TokenLogprob& other : token.top) {
    top.emplace(token_label(*tokenizer_, other.token), finite(other.logprob));
  }
  top.emplace(token_label(*tokenizer_, token.token), finite(token.logprob));
  top_logprobs_.push_back(std::move(top));
}

json::object CompletionLogprobs::take() {
  json::object out{{"tokens", std::move(tokens_)},
                   {"token_logprobs", std::move(token_logprobs_)},
                   {"top_logprobs", std::move(top_logprobs_)},
                   {"text_offset", std::move(text_offset_)}};
  tokens_ = {};
  token_logprobs_ = {};
  top_logprobs_ = {};
  text_offset_ = {};
  return out;
}

}  // namespace spillway::server
