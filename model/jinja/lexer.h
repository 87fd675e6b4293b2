// A template's text to tokens, with jinja2's whitespace control under trim_blocks and
// lstrip_blocks, as Hugging Face sets both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/value.h"

namespace spillway::model::jinja {

enum class TokenType : uint8_t {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // text says which
  kEnd,
};

struct Token {
  TokenType type;
  int line;
  std::string text;  // of strings, the unescaped value
  Value number;      // of kInteger and kFloat
};

// Ends with a kEnd token. Throws a Failure with its line.
std::vector<Token> tokenize(std::string_view source);

// What a message calls the token.
std::string describe(const Token& token);

}  // namespace spillway::model::jinja
