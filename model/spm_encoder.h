// SentencePiece's BPE ("llama" in model files: Llama 2, Mistral, Gemma, Phi-3): characters merged
// pair by pair, the best score first, the leftmost of equal ones; what has no token falls back to
// bytes. Spaces are written U+2581. Immutable after construction: any thread.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/flat_index.h"
#include "model/text_part.h"
#include "model/tokenizer_data.h"
#include "model/vocabulary.h"
#include "runtime/result.h"

namespace spillway::model {

class SpmEncoder {
 public:
  // `vocabulary` must outlive the encoder and stay where it is. The error names what is missing.
  static Result<SpmEncoder> create(const TokenizerData& data, const Vocabulary& vocabulary);

  // What a normal token's text stands for: U+2581 is a space.
  static std::optional<std::string> decode(std::string_view text);

  // A space goes before a text at its beginning and behind each special token.
  bool adds_space_prefix() const { return adds_space_prefix_; }

  // Appends the parts' tokens. O(n log n) at worst, linear for ordinary text. A byte that no token
  // stands for becomes U+FFFD, or the unknown token, or nothing, whichever the vocabulary has.
  void encode(std::span<const TextPart> parts, std::vector<TokenId>& tokens) const;

 private:
  struct Symbol;
  struct Pair;
  struct Work;

  SpmEncoder(const TokenizerData& data, const Vocabulary& vocabulary);
  void index_tokens(const TokenizerData& data, const Vocabulary& vocabulary);
  size_t neighbour_bit(uint32_t left, uint32_t right) const;
  void note_neighbours(std::string_view token);
  bool may_join(uint32_t left, uint32_t right) const;
  bool needs_change(const TextPart& part) const;
  std::string changed(const TextPart& part) const;
  void encode_text(std::string_view text, Work& work, std::vector<TokenId>& tokens) const;
  void encode_segment(std::string_view segment, Work& work, std::vector<TokenId>& tokens) const;
  void merge_symbols(std::string_view segment, Work& work) const;
  void push_pair(std::string_view segment, Work& work, uint32_t left, uint32_t right) const;
  void append_symbol(std::string_view bytes, std::vector<TokenId>& tokens) const;

  bool adds_space_prefix_;
  bool removes_extra_whitespace_;
  size_t token_bytes_max_ = 0;
  StringIndex index_;                 // bytes to id, of tokens that plain text may become
  std::vector<float> scores_;         // by id
  std::vector<uint64_t> neighbours_;  // a Bloom filter over pairs of characters, see may_join
  std::array<TokenId, 256> byte_token_;
  TokenId unknown_;      // for a character without token, where bytes have none
  TokenId replacement_;  // for a byte that is not UTF-8, likewise
};

}  // namespace spillway::model
