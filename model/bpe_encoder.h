// Byte-level byte pair encoding, GPT-2's and its descendants': words by the model's pre-tokenizer,
// each word's bytes merged pair by pair, the strongest merge first, the leftmost of equal ones.
// Immutable after construction: any thread.
#pragma once

#include <array>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/flat_index.h"
#include "model/pretokenizer.h"
#include "model/text_part.h"
#include "model/tokenizer_data.h"
#include "model/vocabulary.h"
#include "runtime/result.h"

namespace spillway::model {

class BpeEncoder {
 public:
  // `vocabulary` must outlive the encoder and stay where it is. The error names what is missing.
  static Result<BpeEncoder> create(const TokenizerData& data, const Vocabulary& vocabulary);

  // Appends the parts' tokens. O(n log n) for a word of n bytes, linear for ordinary text.
  // A byte that no token stands for is left out, as the models' own tokenizers do (SmolLM's
  // vocabulary lacks most control characters); one that UTF-8 never has becomes U+FFFD.
  void encode(std::span<const TextPart> parts, std::vector<TokenId>& tokens) const;

  bool adds_bos() const { return pretokenizer_.adds_bos(); }

 private:
  struct Symbol;
  struct Pair;
  struct Work;

  BpeEncoder(const TokenizerData& data, const Vocabulary& vocabulary, Pretokenizer pretokenizer);
  void index_symbols(const TokenizerData& data, const Vocabulary& vocabulary);
  void index_merges(const TokenizerData& data);
  uint32_t intern(const std::string& bytes);
  void encode_word(std::string_view word, Work& work, std::vector<TokenId>& tokens) const;
  void merge_symbols(Work& work) const;
  void push_pair(Work& work, uint32_t left, uint32_t right) const;
  void append_symbol(uint32_t symbol, std::vector<TokenId>& tokens) const;
  void append_byte(uint8_t byte, std::vector<TokenId>& tokens) const;

  Pretokenizer pretokenizer_;
  uint32_t vocabulary_;                // symbols below are tokens; those from it on have no token
  StringIndex symbols_;                // bytes to symbol, of tokens that plain text may become
  std::deque<std::string> tokenless_;  // bytes of the symbols without token; they stay in place
  MergeIndex merges_;
  std::array<uint32_t, 256> byte_symbol_{};
  std::vector<TokenId> replacement_;  // for a byte without token
};

}  // namespace spillway::model
