#include "model/vocabulary.h"

#include <algorithm>
#include <span>

#include "runtime/check.h"

namespace spillway::model {
namespace {

// Tokens by whose text models are known to end an answer, as files seldom list them all.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",          // Llama 3
    "<|eom_id|>",          // Llama 3, before a tool's answer
    "<|end_of_text|>",     // Llama 3, Granite
    "<|im_end|>",          // ChatML
    "<|endoftext|>",       // GPT-2, Qwen, Phi
    "<|end|>",             // Phi 3
    "<|return|>",          // gpt-oss
    "<|call|>",            // gpt-oss
    "<|fim_pad|>",         // Qwen 2.5, filling in code
    "<|repo_name|>",       // Qwen 2.5, where the next project begins
    "<|file_sep|>",        // Qwen 2.5, where the next file begins
    "<end_of_turn>",       // Gemma
    "<eos>",               // Gemma
    "</s>",                // SentencePiece
    "<EOT>",               // CodeLlama
    "_<EOT>",              // CodeLlama
    "[EOT]",               // Kimi K2
    "[EOS]",               // Kimi K2
    "<end_of_utterance>",  // SmolDocling
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",  // DeepSeek
};

// Tokens that are control tokens whatever the file says: many say user-defined, with which any text
// of a client could place them (case M2).
constexpr std::string_view kControlTexts[] = {
    "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",  // Qwen 2.5
    "<fim-prefix>",   "<fim-middle>",   "<fim-suffix>",
    "<fim_prefix>",   "<fim_middle>",   "<fim_suffix>",  // StarCoder, Granite
    "<fim-pad>",      "<fim_pad>",      "<fim-repo>",
    "<reponame>",     "<PRE>",          "<MID>",
    "<SUF>",  // CodeLlama
};

// Where a file says that this one is no control token, it is none: Gemma's ends struck-out HTML.
constexpr std::string_view kMaybeOrdinary = "</s>";

bool is_one_of(std::span<const std::string_view> texts, std::string_view text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// "<0x0A>"
std::optional<std::string> byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  const int high = hex_digit(text[3]);
  const int low = hex_digit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return std::string(1, static_cast<char>(high * 16 + low));
}

}  // namespace

Vocabulary::Vocabulary(const TokenizerData& data, Decode decode) : types_(data.types) {
  const size_t count = data.tokens.size();
  types_.resize(count, TokenType::kNormal);
  if (data.types.empty()) {
    // Without types at least the named ones are known.
    for (const TokenId id : {data.bos, data.eos, data.eot, data.eom}) {
      if (id >= 0) types_[static_cast<size_t>(id)] = TokenType::kControl;
    }
  }
  offsets_.reserve(count + 1);
  for (size_t i = 0; i < count; ++i) {
    offsets_.push_back(static_cast<uint32_t>(arena_.size()));
    const std::string_view text = data.tokens[i];
    std::optional<std::string> bytes;
    if (types_[i] == TokenType::kNormal) bytes = decode(text);
    if (types_[i] == TokenType::kByte) {
      bytes = byte_token(text);
      if (!bytes) types_[i] = TokenType::kUnused;
    }
    const std::string_view stored = bytes ? std::string_view(*bytes) : text;
    arena_.insert(arena_.end(), stored.begin(), stored.end());
    CHECK(arena_.size() <= UINT32_MAX);
  }
  offsets_.push_back(static_cast<uint32_t>(arena_.size()));
  find_end_tokens(data);
}

void Vocabulary::find_end_tokens(const TokenizerData& data) {
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const std::string_view text = data.tokens[i];
    if (is_one_of(kControlTexts, text)) types_[i] = TokenType::kControl;
    if (!is_one_of(kEndTexts, text)) continue;
    if (types_[i] != TokenType::kControl) {
      if (text == kMaybeOrdinary) continue;
      types_[i] = TokenType::kControl;
    }
    end_tokens_.push_back(static_cast<TokenId>(i));
  }
  for (const TokenId id : {data.eos, data.eot, data.eom}) {
    if (id >= 0) end_tokens_.push_back(id);
  }
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
}

std::string_view Vocabulary::bytes(TokenId token) const {
  const size_t i = static_cast<size_t>(token);
  CHECK(i < types_.size());
  return {arena_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]};
}

std::string_view Vocabulary::piece(TokenId token, bool show_control) const {
  if (token < 0 || token >= static_cast<TokenId>(size())) return {};
  switch (type(token)) {
    case TokenType::kNormal:
    case TokenType::kUserDefined:
    case TokenType::kByte:
      return bytes(token);
    case TokenType::kControl:
    case TokenType::kUnknown:
      return show_control ? bytes(token) : std::string_view();
    case TokenType::kUnused:
      break;
  }
  return {};
}

bool Vocabulary::ends_generation(TokenId token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

}  // namespace spillway::model
