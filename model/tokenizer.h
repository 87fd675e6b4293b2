// Text to tokens and back. Immutable after construction: any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/token.h"
#include "runtime/result.h"

namespace spillway::model {

class GgufFile;
struct TokenizerData;

struct EncodeOptions {
  bool add_special = true;     // BOS/EOS as the model file says; never a second BOS
  bool parse_special = false;  // false: text of CONTROL tokens stays plain text (case M2)
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Reads tokenizer.ggml.* of the file. An unknown model or pre-tokenizer is an error naming it.
  static Result<std::unique_ptr<Tokenizer>> create(const GgufFile& file);
  // The same from data in hand (tokenizer_data.h). Nothing of it is needed afterwards.
  static Result<std::unique_ptr<Tokenizer>> create(const TokenizerData& data);

  // Linear in the text's length, whatever the text (case A11). Invalid UTF-8 is encoded by bytes
  // where the vocabulary has them, else as U+FFFD.
  virtual std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const = 0;
  // The bytes a token stands for, in the middle of a text. Control tokens give "" unless asked.
  virtual std::string_view piece(TokenId token, bool show_control = false) const = 0;
  // Text of a token sequence; drops the leading space that encode() added where the model adds one.
  virtual std::string decode(const std::vector<TokenId>& tokens, bool show_control) const = 0;

  virtual uint32_t vocabulary() const = 0;
  virtual TokenId bos() const = 0;  // -1: none
  virtual TokenId eos() const = 0;
  virtual bool adds_bos() const = 0;
  virtual bool ends_generation(TokenId token) const = 0;  // eos, eot, <|im_end|>, ...
  virtual const std::vector<TokenId>& end_tokens() const = 0;
  virtual bool is_control(TokenId token) const = 0;
  // encode() puts a space before a text, which decode() takes off again.
  virtual bool drops_leading_space() const { return false; }
};

}  // namespace spillway::model
