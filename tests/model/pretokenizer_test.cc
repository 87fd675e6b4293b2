// Pre-tokenizers against an independent implementation of the published patterns, and their time
// on hostile text.
#include "model/pretokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>

namespace spillway::model {
namespace {

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

std::string joined(const std::vector<size_t>& lengths) {
  std::string out;
  for (const size_t length : lengths) out += (out.empty() ? "" : ",") + std::to_string(length);
  return out;
}

std::vector<size_t> split(const Pretokenizer& pretokenizer, std::string_view text) {
  Pretokenizer::Scratch scratch;
  std::vector<size_t> lengths;
  pretokenizer.split(text, scratch, lengths);
  return lengths;
}

// SPILLWAY_SPLIT_CASES names another file of make_split_cases.py to check, a longer one.
TEST(Pretokenizer, splits_as_the_published_patterns_do) {
  const char* other = std::getenv("SPILLWAY_SPLIT_CASES");
  std::ifstream file(other != nullptr ? other : "tests/data/tokenizer/split_cases.tsv");
  ASSERT_TRUE(file.good());
  std::string line;
  int cases = 0;
  int wrong = 0;
  while (std::getline(file, line) && wrong < 20) {
    std::istringstream fields(line);
    std::string name, hex, expected;
    std::getline(fields, name, '\t');
    std::getline(fields, hex, '\t');
    std::getline(fields, expected, '\t');
    Result<Pretokenizer> pretokenizer = Pretokenizer::create(name);
    ASSERT_TRUE(pretokenizer.has_value()) << name;
    const std::string text = from_hex(hex);
    const std::string got = joined(split(*pretokenizer, text));
    if (got != expected) ++wrong;
    EXPECT_EQ(got, expected) << name << ": " << testing::PrintToString(text) << "\n" << hex;
    ++cases;
  }
  EXPECT_GE(cases, 500);
}

TEST(Pretokenizer, unknown_name_is_an_error_that_names_it_and_what_is_known) {
  const Result<Pretokenizer> result = Pretokenizer::create("martian-bpe");
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(result.error().message.find("'martian-bpe'"), std::string::npos);
  for (const char* known : {"default", "gpt-2", "smollm", "llama-bpe", "qwen2", "tekken"}) {
    EXPECT_NE(result.error().message.find(known), std::string::npos) << known;
  }
}

constexpr const char* kNames[] = {
    "default",    "gpt-2",  "smollm", "falcon",       "llama-bpe",      "qwen2",      "qwen35",
    "seed-coder", "tekken", "gpt-4o", "deepseek-llm", "deepseek-coder", "deepseek-v3"};

RC_GTEST_PROP(Pretokenizer, words_cover_any_bytes, ()) {
  const std::string name =
      *rc::gen::elementOf(std::vector<std::string>(std::begin(kNames), std::end(kNames)));
  const std::string text = *rc::gen::container<std::string>(rc::gen::oneOf(
      rc::gen::arbitrary<char>(), rc::gen::element(' ', '\n', '\r', '\'', 's', 'L', '7', '.')));
  const std::vector<size_t> lengths = split(Pretokenizer::create(name).value(), text);
  RC_ASSERT(std::accumulate(lengths.begin(), lengths.end(), size_t{0}) == text.size());
  for (const size_t length : lengths) RC_ASSERT(length > 0u);
}

std::string repeated(std::string_view unit, size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

// case A11. About 10 ms each where linear, seconds to hours where not.
TEST(Pretokenizer, hostile_text_takes_linear_time) {
  constexpr const char* kUnits[] = {"a",
                                    "A",
                                    " ",
                                    "\n",
                                    "7",
                                    "'",
                                    "'s",
                                    " \n",
                                    "Aa",
                                    "aA",
                                    ".",
                                    "\xCC\x81",
                                    "\xF0\x9F\x98\x80",
                                    "\xFF",
                                    "\xE4\xB8\xAD",
                                    "\u4E2DA",
                                    ".\n",
                                    "/\n",
                                    " a",
                                    "\t ",
                                    "\xE3\x80\x80",
                                    "A\xCC\x81",
                                    "!A",
                                    "\xC2\x85"};
  for (const char* name : kNames) {
    const Pretokenizer pretokenizer = Pretokenizer::create(name).value();
    for (const char* unit : kUnits) {
      for (const char* tail : {"", "B"}) {
        const std::string text = repeated(unit, 131072) + tail;
        const auto begin = std::chrono::steady_clock::now();
        split(pretokenizer, text);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        EXPECT_LT(took.count(), 0.25) << name << " " << testing::PrintToString(unit);
      }
    }
  }
}

}  // namespace
}  // namespace spillway::model
