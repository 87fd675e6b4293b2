// Small vocabularies for tokenizer tests. Owns the texts that TokenizerData only views.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "model/byte_alphabet.h"
#include "model/tokenizer.h"
#include "model/tokenizer_data.h"
#include "model/utf8.h"

namespace spillway::model {

class ToyVocabulary {
 public:
  explicit ToyVocabulary(std::string model, std::string pretokenizer = "default") {
    data.model = std::move(model);
    data.pretokenizer = std::move(pretokenizer);
  }

  TokenId add(const std::string& text, TokenType type = TokenType::kNormal, float score = 0) {
    texts_.push_back(text);
    data.tokens.push_back(texts_.back());
    data.types.push_back(type);
    data.scores.push_back(score);
    return static_cast<TokenId>(data.tokens.size() - 1);
  }

  // What a byte-level vocabulary writes for these bytes.
  static std::string alphabet(std::string_view bytes) {
    std::string out;
    for (const char byte : bytes) append_utf8(out, byte_to_code_point(static_cast<uint8_t>(byte)));
    return out;
  }

  TokenId add_bytes(std::string_view bytes) { return add(alphabet(bytes)); }
  void add_all_bytes() {
    for (int byte = 0; byte < 256; ++byte) add_bytes(std::string(1, static_cast<char>(byte)));
  }
  // A merge of two byte strings; its outcome becomes a token.
  TokenId add_merge(std::string_view left, std::string_view right) {
    texts_.push_back(alphabet(left) + " " + alphabet(right));
    data.merges.push_back(texts_.back());
    return add_bytes(std::string(left) + std::string(right));
  }

  // "<0x00>" and so on.
  void add_byte_tokens() {
    constexpr const char* kHex = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; ++byte) {
      add(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", TokenType::kByte);
    }
  }

  std::unique_ptr<Tokenizer> tokenizer() const { return Tokenizer::create(data).value(); }

  TokenizerData data;

 private:
  std::deque<std::string> texts_;  // stay in place
};

}  // namespace spillway::model
