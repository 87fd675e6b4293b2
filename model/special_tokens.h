// Finds control and user-defined tokens in a text, leftmost and longest first, before the tokenizer
// proper sees what lies between them. A trie: one step per byte and at most the longest token's
// length from each place. Immutable after construction: any thread.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "model/text_part.h"
#include "model/tokenizer_data.h"
#include "model/vocabulary.h"

namespace spillway::model {

class SpecialTokens {
 public:
  SpecialTokens(const TokenizerData& data, const Vocabulary& vocabulary);

  // Appends the parts of the text in order. Control tokens are found only if `parse_control`
  // (case M2).
  void split(std::string_view text, bool parse_control, std::vector<TextPart>& parts) const;

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

  Found find_at(std::string_view text, size_t at, bool parse_control) const;
  uint32_t child(uint32_t node, char byte) const;
  uint32_t add_path(std::string_view text);

  std::array<uint32_t, 256> first_{};  // by first byte
  std::vector<Node> nodes_;            // node 0 is nobody
};

}  // namespace spillway::model
