// What special_tokens.h makes of a text and the encoders take: text between special tokens, and
// those tokens.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "model/token.h"

namespace spillway::model {

struct TextPart {
  TokenId token = -1;          // a special token; -1: text
  std::string_view text;       // not empty where it is text
  bool after_special = false;  // the text begins the whole text or follows a special token
};

inline size_t text_bytes(std::span<const TextPart> parts) {
  size_t bytes = 0;
  for (const TextPart& part : parts) bytes += part.text.size();
  return bytes;
}

}  // namespace spillway::model
