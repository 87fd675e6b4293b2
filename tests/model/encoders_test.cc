// Byte pair encoding and SentencePiece merging against their definitions, and their time on
// hostile text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <map>

#include "model/pretokenizer.h"
#include "tests/model/toy_vocabulary.h"

namespace spillway::model {
namespace {

using testing::ElementsAre;

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};

// Texts of few letters, so that merges occur and overlap.
std::string arbitrary_text(int parts_max) {
  std::string text;
  const int count = *rc::gen::resize(100, rc::gen::inRange(0, parts_max));
  for (int i = 0; i < count; ++i) {
    text += *rc::gen::element<std::string>("a", "a", "b", "c", " ", "  ", "\n", "7", "é", "漢",
                                           "\xFF", "\xE6\xBC");
  }
  return text;
}

// --- BPE ---

struct BpeCase {
  ToyVocabulary vocabulary{"gpt2", "qwen2"};
  std::map<std::pair<std::string, std::string>, int> ranks;
};

// Merges of tokens that are there, now and then of one that no merge makes.
void arbitrary_merges(BpeCase& bpe) {
  bpe.vocabulary.add_all_bytes();
  std::vector<std::string> known = {"a", "b", "c", " ", "\n", "7", "\xC3", "\xA9", "\xE6", "\xBC"};
  const int count = *rc::gen::resize(100, rc::gen::inRange(1, 40));
  for (int rank = 0; rank < count; ++rank) {
    const std::string left = *rc::gen::elementOf(known);
    const std::string right = *rc::gen::elementOf(known);
    if (left.size() + right.size() > 12) continue;
    if (!bpe.ranks.emplace(std::pair(left, right), rank).second) continue;
    bpe.vocabulary.add_merge(left, right);
    if (*rc::gen::inRange(0, 6) == 0) {
      bpe.vocabulary.data.types.back() = TokenType::kUnused;  // a merge on the way to others only
    }
    known.push_back(left + right);
  }
}

// The definition: the lowest ranked pair of the word, the leftmost of equal ones, again and again.
std::vector<std::string> merge_word(const BpeCase& bpe, std::string_view word) {
  std::vector<std::string> parts;
  for (const char byte : word) parts.emplace_back(1, byte);
  for (;;) {
    int best = INT32_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = bpe.ranks.find({parts[i], parts[i + 1]});
      if (found != bpe.ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == INT32_MAX) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

RC_GTEST_PROP(BpeEncoder, merges_as_the_definition_says, ()) {
  BpeCase bpe;
  arbitrary_merges(bpe);
  const std::string text = arbitrary_text(60);
  std::map<std::string, TokenId> ids;
  for (size_t i = 0; i < bpe.vocabulary.data.tokens.size(); ++i) {
    if (bpe.vocabulary.data.types[i] != TokenType::kNormal) continue;
    ids.emplace(*decode_byte_text(bpe.vocabulary.data.tokens[i]), static_cast<TokenId>(i));
  }
  std::vector<TokenId> expected;
  std::vector<size_t> word_bytes;
  Pretokenizer::Scratch scratch;
  Pretokenizer::create("qwen2").value().split(text, scratch, word_bytes);
  size_t at = 0;
  for (const size_t bytes : word_bytes) {
    for (const std::string& part : merge_word(bpe, std::string_view(text).substr(at, bytes))) {
      if (ids.count(part) > 0) {
        expected.push_back(ids[part]);
      } else {
        for (const char byte : part) expected.push_back(ids[std::string(1, byte)]);
      }
    }
    at += bytes;
  }
  const auto tokenizer = bpe.vocabulary.tokenizer();
  RC_ASSERT(tokenizer->encode(text, kPlain) == expected);
  RC_ASSERT(tokenizer->decode(expected, false) == text);
}

TEST(BpeEncoder, llama3_takes_a_whole_word_that_is_a_token) {
  ToyVocabulary vocabulary("gpt2", "llama-bpe");
  vocabulary.add_all_bytes();
  const TokenId bc = vocabulary.add_merge("b", "c");
  const TokenId abc = vocabulary.add_bytes("abc");  // no merge leads here
  EXPECT_THAT(vocabulary.tokenizer()->encode("abc", kPlain), ElementsAre(abc));
  vocabulary.data.pretokenizer = "qwen2";
  EXPECT_THAT(vocabulary.tokenizer()->encode("abc", kPlain), ElementsAre('a', bc));
}

TEST(BpeEncoder, byte_without_token_is_left_out_or_replaced) {
  ToyVocabulary vocabulary("gpt2", "gpt-2");
  for (const char* byte : {"a", "b", "\xEF", "\xBF", "\xBD"}) vocabulary.add_bytes(byte);
  vocabulary.add_merge("a", "b");
  const auto tokenizer = vocabulary.tokenizer();
  EXPECT_THAT(tokenizer->encode("a\x01"
                                "b",
                                kPlain),
              ElementsAre(0, 1));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\xFF", kPlain), false), "a\uFFFD");
}

// --- SentencePiece ---

struct SpmCase {
  ToyVocabulary vocabulary{"llama"};
  std::map<std::string, std::pair<float, TokenId>> tokens;  // by bytes
};

void arbitrary_spm(SpmCase& spm) {
  spm.vocabulary.add_byte_tokens();
  std::vector<std::string> known = {"a", "b", " ", "\n", "é", "漢"};
  for (const std::string& text : known) {
    if (*rc::gen::inRange(0, 8) == 0) continue;
    const std::string written = text == " " ? "\xE2\x96\x81" : text;
    spm.tokens[text] = {0.0f, spm.vocabulary.add(written)};
  }
  const int count = *rc::gen::resize(100, rc::gen::inRange(1, 40));
  for (int i = 0; i < count; ++i) {
    const std::string text = *rc::gen::elementOf(known) + *rc::gen::elementOf(known);
    if (text.size() > 14 || spm.tokens.count(text) > 0) continue;
    std::string written;
    for (const char c : text) {
      if (c == ' ') written += "\xE2\x96\x81";
      if (c != ' ') written += c;
    }
    const float score = static_cast<float>(*rc::gen::inRange(-5, 5));  // ties are common
    spm.tokens[text] = {score, spm.vocabulary.add(written, TokenType::kNormal, score)};
    known.push_back(text);
  }
  spm.vocabulary.data.adds_space_prefix = *rc::gen::arbitrary<bool>();
}

// The definition, over the whole text at once.
std::vector<TokenId> merge_text(const SpmCase& spm, const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = read_utf8(text, at);
    const size_t bytes = step.kind == Utf8Kind::kValid ? step.bytes : 1;
    parts.push_back(text.substr(at, bytes));
    at += bytes;
  }
  for (;;) {
    const std::pair<float, TokenId>* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = spm.tokens.find(parts[i] + parts[i + 1]);
      if (found == spm.tokens.end()) continue;
      if (best == nullptr || found->second.first > best->first) {
        best = &found->second;
        at = i;
      }
    }
    if (best == nullptr) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& part : parts) {
    if (spm.tokens.count(part) > 0) {
      ids.push_back(spm.tokens.at(part).second);
    } else {
      for (const char byte : part) ids.push_back(static_cast<uint8_t>(byte));
    }
  }
  return ids;
}

RC_GTEST_PROP(SpmEncoder, merges_as_the_definition_says, ()) {
  SpmCase spm;
  arbitrary_spm(spm);
  const std::string text = arbitrary_text(60);
  const bool prefix = *spm.vocabulary.data.adds_space_prefix && !text.empty();
  const auto tokenizer = spm.vocabulary.tokenizer();
  const std::vector<TokenId> tokens = tokenizer->encode(text, kPlain);
  RC_ASSERT(tokens == merge_text(spm, prefix ? " " + text : text));
  RC_ASSERT(tokenizer->decode(tokens, false) == text);
}

TEST(SpmEncoder, space_goes_before_the_text_and_behind_special_tokens) {
  ToyVocabulary spm("llama");
  spm.add_byte_tokens();
  const TokenId end = spm.add("</s>", TokenType::kControl);
  const TokenId a = spm.add("a"), space_a = spm.add(
                                      "\xE2\x96\x81"
                                      "a");
  EXPECT_THAT(spm.tokenizer()->encode("aa</s>a", {.add_special = false, .parse_special = true}),
              ElementsAre(space_a, a, end, space_a));
}

TEST(SpmEncoder, extra_whitespace_goes_where_the_file_says_so) {
  ToyVocabulary spm("llama");
  spm.add_byte_tokens();
  spm.add("\xE2\x96\x81");
  spm.data.removes_extra_whitespace = true;
  const auto tokenizer = spm.tokenizer();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("  a   b ", kPlain), false), "a b");
}

TEST(SpmEncoder, character_without_token_or_bytes_is_unknown) {
  ToyVocabulary spm("llama");
  spm.data.adds_space_prefix = false;
  spm.data.unknown = spm.add("<unk>", TokenType::kUnknown);
  const TokenId a = spm.add("a"), replacement = spm.add("\uFFFD");
  EXPECT_THAT(spm.tokenizer()->encode("a漢\xFF", kPlain), ElementsAre(a, 0, replacement));
}

// --- case A11 ---

double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<TokenId> tokens = tokenizer.encode(text, kPlain);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(tokenizer.decode(tokens, false), text);
  return took.count();
}

std::vector<std::string> hostile_texts() {
  std::vector<std::string> texts;
  for (const std::string unit : {"a", " ", "\n", "7", "'", "\xCC\x81", "😀", "\xFF", "漢", "ab",
                                 "a b", "\xF0\x9F", "\n ", "<", "<|"}) {
    std::string text;
    for (int i = 0; i < 131072; ++i) text += unit;
    texts.push_back(std::move(text));
  }
  return texts;
}

// Tokens of 2, 4, ... 64 times the same, so that merging has much to do.
TEST(BpeEncoder, hostile_text_takes_linear_time) {
  ToyVocabulary vocabulary("gpt2", "llama-bpe");
  vocabulary.add_all_bytes();
  for (std::string unit : {"a", " ", "\n", "'", "\xCC\x81", "\xFF", "ab"}) {
    if (unit.size() == 2) vocabulary.add_merge(unit.substr(0, 1), unit.substr(1));
    while (unit.size() < 64) {
      vocabulary.add_merge(unit, unit);
      unit += unit;
    }
  }
  vocabulary.add("<|x|>", TokenType::kUserDefined);
  const auto tokenizer = vocabulary.tokenizer();
  for (const std::string& text : hostile_texts()) EXPECT_LT(seconds_to_encode(*tokenizer, text), 2);
}

TEST(SpmEncoder, hostile_text_takes_linear_time) {
  ToyVocabulary vocabulary("llama");
  vocabulary.add_byte_tokens();
  for (const std::string unit : {"a", "\xE2\x96\x81", "7", "漢", "ab"}) {
    std::string text = unit;
    for (int i = 1; i < 32; ++i) {
      vocabulary.add(text, TokenType::kNormal, static_cast<float>(i % 7));
      text += unit;
    }
  }
  vocabulary.add("<|x|>", TokenType::kUserDefined);
  const auto tokenizer = vocabulary.tokenizer();
  for (const std::string& text : hostile_texts()) EXPECT_LT(seconds_to_encode(*tokenizer, text), 2);
}

}  // namespace
}  // namespace spillway::model
