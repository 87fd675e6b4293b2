// The tokens of a model: the bytes each stands for, which are control tokens, which end an answer.
// Immutable after construction: any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer_data.h"

namespace spillway::model {

class Vocabulary {
 public:
  // `decode` gives the bytes that a normal token's text stands for; nothing: the text itself.
  // REQUIRES: check_tokenizer_data(data).
  using Decode = std::optional<std::string> (*)(std::string_view text);
  Vocabulary(const TokenizerData& data, Decode decode);

  uint32_t size() const { return static_cast<uint32_t>(types_.size()); }
  TokenType type(TokenId token) const { return types_[static_cast<size_t>(token)]; }

  // What the token stands for, in the middle of a text; of tokens that text never shows, their
  // name.
  std::string_view bytes(TokenId token) const;
  // The same, but "" for tokens that text never shows unless `show_control`, and for ids past the
  // vocabulary.
  std::string_view piece(TokenId token, bool show_control) const;

  // The token where it may stand for a piece of plain text, else -1: control tokens never do,
  // whatever else the file makes of them (case M2).
  TokenId if_plain(TokenId token) const {
    return token >= 0 && type(token) != TokenType::kControl ? token : -1;
  }
  bool ends_generation(TokenId token) const;
  const std::vector<TokenId>& end_tokens() const { return end_tokens_; }

 private:
  void find_end_tokens(const TokenizerData& data);

  std::vector<char> arena_;
  std::vector<uint32_t> offsets_;  // (size + 1) into the arena
  std::vector<TokenType> types_;
  std::vector<TokenId> end_tokens_;  // ascending
};

}  // namespace spillway::model
