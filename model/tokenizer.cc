#include "model/tokenizer.h"

#include <variant>

#include "model/bpe_encoder.h"
#include "model/byte_alphabet.h"
#include "model/gguf.h"
#include "model/special_tokens.h"
#include "model/spm_encoder.h"
#include "model/tokenizer_data.h"
#include "model/vocabulary.h"

namespace spillway::model {
namespace {

// Special tokens first, then BPE or SPM for the text between them.
class ModelTokenizer final : public Tokenizer {
 public:
  explicit ModelTokenizer(const TokenizerData& data, Vocabulary::Decode decode)
      : vocabulary_(data, decode), special_(data, vocabulary_), bos_(data.bos), eos_(data.eos) {}
  ModelTokenizer(const ModelTokenizer&) = delete;
  ModelTokenizer& operator=(const ModelTokenizer&) = delete;

  Result<void> finish_bpe(const TokenizerData& data) {
    auto encoder = BpeEncoder::create(data, vocabulary_);
    if (!encoder) return encoder.error();
    finish(data, encoder->adds_bos());
    encoder_ = std::move(*encoder);
    return {};
  }
  Result<void> finish_spm(const TokenizerData& data) {
    auto encoder = SpmEncoder::create(data, vocabulary_);
    if (!encoder) return encoder.error();
    finish(data, true);
    drops_leading_space_ = encoder->adds_space_prefix();
    encoder_ = std::move(*encoder);
    return {};
  }

  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const override {
    std::vector<TextPart> parts;
    special_.split(text, options.parse_special, parts);
    std::vector<TokenId> tokens;
    // Where the text brings its own BOS, that one counts: there is exactly one (case M2).
    const bool brings_bos = !parts.empty() && parts[0].token >= 0 && parts[0].token == bos_;
    if (options.add_special && adds_bos_ && !brings_bos) tokens.push_back(bos_);
    if (const auto* bpe = std::get_if<BpeEncoder>(&encoder_)) bpe->encode(parts, tokens);
    if (const auto* spm = std::get_if<SpmEncoder>(&encoder_)) spm->encode(parts, tokens);
    if (options.add_special && adds_eos_ && (tokens.empty() || tokens.back() != eos_)) {
      tokens.push_back(eos_);
    }
    return tokens;
  }

  std::string_view piece(TokenId token, bool show_control) const override {
    return vocabulary_.piece(token, show_control);
  }

  std::string decode(const std::vector<TokenId>& tokens, bool show_control) const override {
    std::string text;
    for (const TokenId token : tokens) text += vocabulary_.piece(token, show_control);
    if (drops_leading_space_ && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

  uint32_t vocabulary() const override { return vocabulary_.size(); }
  TokenId bos() const override { return bos_; }
  TokenId eos() const override { return eos_; }
  bool adds_bos() const override { return adds_bos_; }
  bool ends_generation(TokenId token) const override { return vocabulary_.ends_generation(token); }
  const std::vector<TokenId>& end_tokens() const override { return vocabulary_.end_tokens(); }
  bool is_control(TokenId token) const override {
    return token >= 0 && token < static_cast<TokenId>(vocabulary_.size()) &&
           vocabulary_.type(token) == TokenType::kControl;
  }
  bool drops_leading_space() const override { return drops_leading_space_; }

 private:
  void finish(const TokenizerData& data, bool adds_bos_by_default) {
    adds_bos_ = bos_ >= 0 && data.adds_bos.value_or(adds_bos_by_default);
    adds_eos_ = eos_ >= 0 && data.adds_eos.value_or(false);
  }

  Vocabulary vocabulary_;
  SpecialTokens special_;
  std::variant<std::monostate, BpeEncoder, SpmEncoder> encoder_;  // set by finish_*()
  TokenId bos_;
  TokenId eos_;
  bool adds_bos_ = false;
  bool adds_eos_ = false;
  bool drops_leading_space_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(const GgufFile& file) {
  const auto data = read_tokenizer_data(file);
  if (!data) return data.error();
  return create(*data);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(const TokenizerData& data) {
  if (const Result<void> checked = check_tokenizer_data(data); !checked) return checked.error();
  const bool bpe = data.model == "gpt2";
  if (!bpe && data.model != "llama") {
    return Error{ErrorCode::kUnsupported,
                 "tokenizer.ggml.model is " + in_quotes(data.model) +
                     ", an unknown tokenizer; known are gpt2 (BPE) and llama (SentencePiece)"};
  }
  auto tokenizer =
      std::make_unique<ModelTokenizer>(data, bpe ? decode_byte_text : SpmEncoder::decode);
  const Result<void> finished = bpe ? tokenizer->finish_bpe(data) : tokenizer->finish_spm(data);
  if (!finished) return finished.error();
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace spillway::model
