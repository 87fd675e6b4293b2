// What holds of any tokenizer and any text (cases A1, M1, M2), for the targets that make one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/text_stream.h"
#include "model/tokenizer.h"
#include "model/utf8.h"
#include "runtime/check.h"

namespace spillway::model {

// Streamed, the tokens give what decode() gives, but for invalid bytes.
inline void check_stream(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  TextStream stream(tokenizer, {}, TextStreamOptions{.at_text_start = true});
  std::string streamed;
  for (const TokenId token : tokens) streamed += stream.push(token).text;
  streamed += stream.flush();
  std::string valid;
  append_valid_utf8(valid, tokenizer.decode(tokens, false), true);
  CHECK(streamed == valid);
}

// Encoding stays in the vocabulary, and makes no control token of plain text. Returns the tokens of
// the plain text, without BOS and EOS.
inline std::vector<TokenId> check_encoding(const Tokenizer& tokenizer, const std::string& text) {
  for (const bool parse_special : {false, true}) {
    for (const bool add_special : {false, true}) {
      const auto tokens = tokenizer.encode(text, {add_special, parse_special});
      for (const TokenId token : tokens) {
        CHECK(token >= 0);
        CHECK(static_cast<uint32_t>(token) < tokenizer.vocabulary());
      }
      check_stream(tokenizer, tokens);
    }
  }
  const auto plain = tokenizer.encode(text, {.add_special = false, .parse_special = false});
  for (const TokenId token : plain) CHECK(!tokenizer.is_control(token));
  return plain;
}

}  // namespace spillway::model
