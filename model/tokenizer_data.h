// What a model file says of its tokenizer, before anything is made of it: the seam between files
// and tokenizers, and what tests build by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/token.h"
#include "runtime/result.h"

namespace spillway::model {

class GgufFile;

// The values of tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never made from plain text (case M2)
  kUserDefined = 4,  // matched in any text before the tokenizer proper sees it
  kUnused = 5,
  kByte = 6,
};

// The views point into the model file, or into whatever else the data was made from; a tokenizer
// copies what it needs and outlives them.
struct TokenizerData {
  std::string model;         // tokenizer.ggml.model: "gpt2" is byte-level BPE, "llama" is SPM
  std::string pretokenizer;  // tokenizer.ggml.pre; "" where the file has none
  std::string model_name;    // general.name: Phi-3's tokens strip the space behind them
  std::vector<std::string_view> tokens;  // by id
  std::vector<TokenType> types;          // by id; empty: all normal
  std::vector<float> scores;             // by id; SPM only
  std::vector<std::string_view> merges;  // "left right", the strongest first; BPE only
  TokenId bos = -1;
  TokenId eos = -1;
  TokenId eot = -1;  // the end of a turn
  TokenId eom = -1;  // the end of a message that calls a tool
  TokenId unknown = -1;
  // As the file says, if it does.
  std::optional<bool> adds_bos;
  std::optional<bool> adds_eos;
  std::optional<bool> adds_space_prefix;
  std::optional<bool> removes_extra_whitespace;
};

// Reads tokenizer.ggml.*. Errors name the key.
Result<TokenizerData> read_tokenizer_data(const GgufFile& file);

// What every user of the data relies on: there are tokens, but fewer than 2^31, arrays by id have
// one entry each, ids are in the vocabulary or -1. The error names what is wrong.
Result<void> check_tokenizer_data(const TokenizerData& data);

}  // namespace spillway::model
