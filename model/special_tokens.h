// Finds control and user-defined tokens in a text, leftmost and longest first, before the tokenizer
// proper sees what lies between them. A trie: one step per byte and at most the longest token's
// length from each place. Immutable after construction: any thread.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "model/tokenizer_data.h"
#include "model/vocabulary.h"

namespace spillway::model {

class SpecialTokens {
 public:
  SpecialTokens(const TokenizerData& data, const Vocabulary& vocabulary);

  // Calls on_text(std::string_view) and on_token(TokenId) for the parts of the text in order; a
  // part of text is not empty. Control tokens are found only if `parse_control` (case M2).
  template <class OnText, class OnToken>
  void split(std::string_view text, bool parse_control, OnText on_text, OnToken on_token) const {
    size_t begin = 0;
    size_t at = 0;
    while (at < text.size()) {
      const Found found = find_at(text, at, parse_control);
      if (found.token < 0) {
        ++at;
        continue;
      }
      std::string_view before = text.substr(begin, at - begin);
      if (found.strips_left) before = trim_right(before);
      if (!before.empty()) on_text(before);
      on_token(found.token);
      at += found.bytes;
      while (found.strips_right && at < text.size() && is_space(text[at])) ++at;
      begin = at;
    }
    if (begin < text.size()) on_text(text.substr(begin));
  }

 private:
  struct Node {
    char byte = 0;
    bool control = false;
    bool strips_left = false;
    bool strips_right = false;
    TokenId token = -1;  // that ends here
    uint32_t first_child = 0;
    uint32_t next_sibling = 0;
  };
  struct Found {
    TokenId token = -1;
    size_t bytes = 0;
    bool strips_left = false;
    bool strips_right = false;
  };

  static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  static std::string_view trim_right(std::string_view text);
  Found find_at(std::string_view text, size_t at, bool parse_control) const;
  uint32_t child(uint32_t node, char byte) const;
  uint32_t add_path(std::string_view text);

  std::array<uint32_t, 256> first_{};  // by first byte
  std::vector<Node> nodes_;            // node 0 is nobody
};

}  // namespace spillway::model
