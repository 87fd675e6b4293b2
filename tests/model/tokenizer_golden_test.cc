// Tokens of the two real models against an independent implementation's, and text there and back.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "model/text_stream.h"
#include "model/tokenizer.h"
#include "model/utf8.h"
#include "tests/model/model_cache.h"

namespace spillway::model {
namespace {

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};

const Tokenizer& tokenizer_of(const char* model) {
  static const auto smollm2 = Tokenizer::create(open_cached_model(kSmolLm2)).value();
  static const auto gemma3 = Tokenizer::create(open_cached_model(kGemma3)).value();
  return model == kSmolLm2 ? *smollm2 : *gemma3;
}

struct GoldenText {
  std::string name;
  EncodeOptions options;
  std::string text;
  std::vector<TokenId> tokens;
};

std::vector<GoldenText> read_golden_texts(const std::string& path) {
  std::vector<GoldenText> out;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    GoldenText golden;
    std::istringstream fields(line);
    std::string flags, hex, tokens;
    std::getline(fields, golden.name, '\t');
    std::getline(fields, flags, '\t');
    std::getline(fields, hex, '\t');
    std::getline(fields, tokens, '\t');
    golden.options = {flags[0] == '1', flags[1] == '1'};
    for (size_t i = 0; i < hex.size(); i += 2) {
      golden.text.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    std::istringstream ids(tokens);
    for (TokenId id; ids >> id;) golden.tokens.push_back(id);
    out.push_back(std::move(golden));
  }
  return out;
}

void expect_golden(const char* model, const std::string& path) {
  const std::vector<GoldenText> golden = read_golden_texts(path);
  ASSERT_GT(golden.size(), 60u);
  for (const GoldenText& text : golden) {
    EXPECT_EQ(tokenizer_of(model).encode(text.text, text.options), text.tokens) << text.name;
  }
}

TEST(TokenizerGolden, smollm2_tokens_are_equal) {
  expect_golden(kSmolLm2, "tests/data/tokenizer/golden_smollm2.tsv");
}
TEST(TokenizerGolden, gemma3_tokens_are_equal) {
  expect_golden(kGemma3, "tests/data/tokenizer/golden_gemma3.tsv");
}

TEST(TokenizerGolden, chat_models_end_where_they_should) {
  const Tokenizer& smollm2 = tokenizer_of(kSmolLm2);
  EXPECT_EQ(smollm2.end_tokens(), (std::vector<TokenId>{0, 2}));  // <|endoftext|>, <|im_end|>
  EXPECT_EQ(smollm2.bos(), 1);
  EXPECT_FALSE(smollm2.adds_bos());
  const Tokenizer& gemma3 = tokenizer_of(kGemma3);
  EXPECT_EQ(gemma3.end_tokens(), (std::vector<TokenId>{1, 106}));  // <eos>, <end_of_turn>
  EXPECT_EQ(gemma3.bos(), 2);
  EXPECT_TRUE(gemma3.adds_bos());
}

// Any code points but for what the vocabularies cannot write: SmolLM2's has no tokens for some
// bytes of rare ones, Gemma's writes U+2581 for a space.
std::string arbitrary_text() {
  std::string text;
  const int count = *rc::gen::resize(100, rc::gen::inRange(0, 60));
  for (int i = 0; i < count; ++i) {
    text += *rc::gen::element<std::string>(
        "word", " ", "  ", "\n", "\n\n\n", "\t", "Don't", "42", "…", "é", "e\u0301", "漢字", "😀",
        "👩\u200D👧", "<|im_end|>", "<end_of_turn>", "</s>", "<0x0A>", "ПРИВЕТ", "مرحبا");
  }
  return text;
}

RC_GTEST_PROP(TokenizerGolden, decoded_text_is_the_text, ()) {
  const std::string text = arbitrary_text();
  for (const char* model : {kSmolLm2, kGemma3}) {
    const Tokenizer& tokenizer = tokenizer_of(model);
    for (const bool parse_special : {false, true}) {
      const std::vector<TokenId> tokens = tokenizer.encode(text, {false, parse_special});
      RC_ASSERT(tokenizer.decode(tokens, true) == text);
      TextStream stream(tokenizer, {}, {.show_control = true, .at_text_start = true});
      std::string streamed;
      for (const TokenId token : tokens) streamed += stream.push(token).text;
      RC_ASSERT(streamed + stream.flush() == text);
    }
  }
}

RC_GTEST_PROP(TokenizerGolden, invalid_utf8_survives_byte_fallback, ()) {
  std::string text = arbitrary_text();
  const auto noise = *rc::gen::container<std::string>(rc::gen::inRange<char>(-128, -1));
  text.insert(text.size() / 2, noise);
  const Tokenizer& tokenizer = tokenizer_of(kGemma3);
  if (text.find("\xE2\x96\x81") != text.npos) return;
  RC_ASSERT(tokenizer.decode(tokenizer.encode(text, kPlain), false) == text);
}

// case A11
TEST(TokenizerGolden, hostile_text_takes_linear_time) {
  for (const char* model : {kSmolLm2, kGemma3}) {
    for (const std::string unit :
         {"a", " ", "\n", "7", "'", "\u0301", "😀", "\xFF", "漢", "\t", "<", "=", "-", "\u2581"}) {
      std::string text;
      for (int i = 0; i < 131072; ++i) text += unit;
      const auto begin = std::chrono::steady_clock::now();
      tokenizer_of(model).encode(text, {});
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(took.count(), 2) << model << " " << testing::PrintToString(unit);
    }
  }
}

}  // namespace
}  // namespace spillway::model
