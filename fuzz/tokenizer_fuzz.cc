// Any vocabulary and any text (cases A1, A11, M1, M2): encoding stays in the vocabulary, makes no
// control token of plain text, and decodes to the text where each byte has a token.
//
// The input: a byte that picks tokenizer and pre-tokenizer, a byte of flags, tokens each by a byte
// of length, a byte of type and score, and its bytes, up to a length of 0; then the text.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "fuzz/tokenizer_checks.h"
#include "model/byte_alphabet.h"
#include "model/tokenizer.h"
#include "model/tokenizer_data.h"
#include "model/utf8.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

constexpr std::array<const char*, 14> kPretokenizers = {
    "default", "gpt-2",  "smollm", "falcon",       "llama-bpe",      "qwen2",       "qwen35",
    "tekken",  "gpt-4o", "",       "deepseek-llm", "deepseek-coder", "deepseek-v3", "seed-coder"};

class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  std::string bytes(size_t count) {
    count = std::min(count, size_ - at_);
    std::string out(reinterpret_cast<const char*>(data_) + at_, count);
    at_ += count;
    return out;
  }
  std::string rest() { return bytes(size_ - at_); }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

std::string alphabet(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) append_utf8(out, byte_to_code_point(static_cast<uint8_t>(byte)));
  return out;
}

struct Vocabulary {
  TokenizerData data;
  std::deque<std::string> texts;  // what `data` views

  void add(std::string text, TokenType type, float score) {
    data.tokens.push_back(texts.emplace_back(std::move(text)));
    data.types.push_back(type);
    data.scores.push_back(score);
  }
};

// Byte tokens first, so that every text has tokens.
void add_all_bytes(Vocabulary& vocabulary, bool bpe) {
  constexpr const char* kHex = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    if (bpe) {
      vocabulary.add(alphabet(std::string(1, static_cast<char>(byte))), TokenType::kNormal, 0);
    } else {
      vocabulary.add(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", TokenType::kByte,
                     0);
    }
  }
}

Vocabulary read_vocabulary(Reader& reader) {
  Vocabulary vocabulary;
  TokenizerData& data = vocabulary.data;
  const uint8_t pick = reader.byte();
  const bool bpe = (pick & 1) != 0;
  data.model = bpe ? "gpt2" : "llama";
  data.pretokenizer = kPretokenizers[(pick >> 1) % kPretokenizers.size()];
  const uint8_t flags = reader.byte();
  data.adds_bos = (flags & 1) != 0;
  data.adds_eos = (flags & 2) != 0;
  data.adds_space_prefix = (flags & 4) != 0;
  if ((flags & 8) != 0) data.model_name = "phi-3";
  add_all_bytes(vocabulary, bpe);
  while (const uint8_t length = reader.byte()) {
    const uint8_t kind = reader.byte();
    std::string bytes = reader.bytes(length);
    const TokenType type = static_cast<TokenType>(1 + (kind & 7) % 6);
    if (bpe && type == TokenType::kNormal) {
      const size_t cut = 1 + (kind >> 3) % length;
      const std::string text = alphabet(bytes);
      data.merges.push_back(
          vocabulary.texts.emplace_back(alphabet(bytes.substr(0, cut)) + " " +
                                        alphabet(bytes.substr(std::min(cut, bytes.size())))));
      bytes = text;
    }
    vocabulary.add(std::move(bytes), type, static_cast<float>(kind >> 3));
  }
  if (bpe && data.merges.empty()) data.merges.push_back(vocabulary.texts.emplace_back("a b"));
  const TokenId last = static_cast<TokenId>(data.tokens.size() - 1);
  data.bos = (flags & 16) != 0 ? last : -1;
  data.eos = (flags & 32) != 0 ? last : -1;
  return vocabulary;
}

void check_text(const Tokenizer& tokenizer, const Vocabulary& vocabulary, const std::string& text) {
  const std::vector<TokenId> plain = check_encoding(tokenizer, text);
  bool lossless = vocabulary.data.model_name.empty();
  // SPM puts a space behind a user-defined token, and writes U+2581 for a space.
  if (vocabulary.data.model == "llama") {
    lossless = lossless && text.find("\xE2\x96\x81") == text.npos;
    for (const TokenType type : vocabulary.data.types) {
      lossless = lossless && type != TokenType::kUserDefined;
    }
  }
  if (lossless) CHECK(tokenizer.decode(plain, false) == text);
}

}  // namespace
}  // namespace spillway::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spillway::model;
  Reader reader(data, size);
  const Vocabulary vocabulary = read_vocabulary(reader);
  const auto tokenizer = Tokenizer::create(vocabulary.data);
  if (tokenizer) check_text(**tokenizer, vocabulary, reader.rest());
  return 0;
}
