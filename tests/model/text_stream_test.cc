// A stream's text does not depend on how its bytes are spread over tokens, leaks no part of a stop
// string, and loses nothing.
#include "model/text_stream.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "model/utf8.h"

namespace spillway::model {
namespace {

// Token i stands for pieces[i].
class PieceTokenizer final : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces, bool drops_space = false)
      : pieces_(std::move(pieces)), drops_space_(drops_space) {}

  std::vector<TokenId> encode(std::string_view, EncodeOptions) const override { return {}; }
  std::string_view piece(TokenId token, bool) const override { return pieces_.at(token); }
  std::string decode(const std::vector<TokenId>&, bool) const override { return {}; }
  uint32_t vocabulary() const override { return static_cast<uint32_t>(pieces_.size()); }
  TokenId bos() const override { return -1; }
  TokenId eos() const override { return -1; }
  bool adds_bos() const override { return false; }
  bool ends_generation(TokenId) const override { return false; }
  const std::vector<TokenId>& end_tokens() const override { return none_; }
  bool is_control(TokenId) const override { return false; }
  bool drops_leading_space() const override { return drops_space_; }

 private:
  std::vector<std::string> pieces_;
  std::vector<TokenId> none_;
  bool drops_space_;
};

bool valid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = read_utf8(text, at);
    if (step.kind != Utf8Kind::kValid) return false;
    at += step.bytes;
  }
  return true;
}

struct Outcome {
  std::vector<std::string> parts;
  std::string text;
  std::optional<size_t> stop;
};

Outcome stream(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
               TextStreamOptions options = {}, bool drops_space = false) {
  const PieceTokenizer tokenizer(pieces, drops_space);
  TextStream text_stream(tokenizer, stops, options);
  Outcome out;
  for (TokenId i = 0; i < static_cast<TokenId>(pieces.size()) && !out.stop; ++i) {
    TextStream::Piece piece = text_stream.push(i);
    out.parts.push_back(piece.text);
    out.stop = piece.stop;
  }
  out.parts.push_back(text_stream.flush());
  for (const std::string& part : out.parts) out.text += part;
  return out;
}

std::string replaced(std::string_view bytes) {
  std::string out;
  append_valid_utf8(out, bytes, true);
  return out;
}

// Bytes out of few kinds, so that stop strings occur, overlap and nearly occur.
std::string arbitrary_bytes(int parts_max) {
  std::string out;
  const int count = *rc::gen::resize(100, rc::gen::inRange(0, parts_max + 1));
  for (int i = 0; i < count; ++i) {
    out += *rc::gen::element<std::string>("a", "b", "ab", "\n", "é", "漢", "😀", "\xF0\x9F", "\x98",
                                          "\xC3", "\xFF", std::string(1, '\0'));
  }
  return out;
}

std::vector<std::string> arbitrary_split(const std::string& bytes) {
  std::vector<std::string> pieces;
  size_t at = 0;
  while (at < bytes.size()) {
    if (*rc::gen::inRange(0, 4) == 3) pieces.emplace_back();  // control tokens give nothing
    const size_t count = *rc::gen::inRange<size_t>(1, std::min<size_t>(6, bytes.size() - at) + 1);
    pieces.push_back(bytes.substr(at, count));
    at += count;
  }
  return pieces;
}

// Half of them occur in `bytes`.
std::vector<std::string> arbitrary_stops(const std::string& bytes) {
  std::vector<std::string> stops;
  const int count = *rc::gen::resize(100, rc::gen::inRange(0, 5));
  for (int i = 0; i < count; ++i) {
    std::string stop = arbitrary_bytes(4);
    if (!bytes.empty() && *rc::gen::arbitrary<bool>()) {
      const size_t at = *rc::gen::resize(100, rc::gen::inRange<size_t>(0, bytes.size()));
      stop = bytes.substr(at, *rc::gen::resize(100, rc::gen::inRange<size_t>(1, 9)));
    }
    if (!stop.empty()) stops.push_back(stop);
  }
  return stops;
}

struct Expected {
  std::string bytes;
  std::optional<size_t> stop;
};

// The stop that is complete first; of those that end together the longest, then the first.
Expected expect(const std::string& bytes, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 1; end <= bytes.size(); ++end) {
    const std::string_view head = std::string_view(bytes).substr(0, end);
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (head.ends_with(stops[i]) && (!best || stops[i].size() > stops[*best].size())) best = i;
    }
    if (best) return {bytes.substr(0, include ? end : end - stops[*best].size()), best};
  }
  return {bytes, std::nullopt};
}

// cases A1, A2
RC_GTEST_PROP(TextStream, text_is_the_same_for_any_split_over_tokens, ()) {
  const std::string bytes = arbitrary_bytes(30);
  const std::vector<std::string> stops = arbitrary_stops(bytes);
  TextStreamOptions options;
  options.include_stop_string = *rc::gen::arbitrary<bool>();
  const Outcome outcome = stream(arbitrary_split(bytes), stops, options);
  const Expected expected = expect(bytes, stops, options.include_stop_string);
  RC_ASSERT(outcome.stop == expected.stop);
  RC_ASSERT(outcome.text == replaced(expected.bytes));
  for (const std::string& part : outcome.parts) RC_ASSERT(valid_utf8(part));
}

// What is held back at any moment is needed: an unfinished code point or a stop string's beginning.
RC_GTEST_PROP(TextStream, holds_back_only_what_it_must, ()) {
  const std::string bytes = arbitrary_bytes(30);
  const std::vector<std::string> stops = arbitrary_stops(bytes);
  const std::vector<std::string> pieces = arbitrary_split(bytes);
  const PieceTokenizer tokenizer(pieces);
  TextStream text_stream(tokenizer, stops);
  std::string sent, seen;
  for (TokenId i = 0; i < static_cast<TokenId>(pieces.size()); ++i) {
    const TextStream::Piece piece = text_stream.push(i);
    if (piece.stop) return;
    sent += piece.text;
    seen += pieces[i];
    size_t pending = 0;  // longest end of `seen` that begins a stop string
    for (const std::string& stop : stops) {
      for (size_t n = 1; n < stop.size() && n <= seen.size(); ++n) {
        if (seen.ends_with(std::string_view(stop).substr(0, n))) pending = std::max(pending, n);
      }
    }
    std::string due;
    append_valid_utf8(due, std::string_view(seen).substr(0, seen.size() - pending), false);
    RC_ASSERT(sent == due);
  }
}

// case A1
TEST(TextStream, split_emoji_waits_for_its_last_byte) {
  const Outcome outcome = stream({"\xF0", "\x9F\x98", "\x80!"}, {});
  EXPECT_EQ(outcome.parts, (std::vector<std::string>{"", "", "😀!", ""}));
}

// case A1
TEST(TextStream, code_point_cut_by_the_end_is_one_replacement) {
  EXPECT_EQ(stream({"ok\xF0\x9F\x98"}, {}).parts, (std::vector<std::string>{"ok", "\uFFFD"}));
}

// case A2
TEST(TextStream, stop_string_across_tokens_leaks_no_part) {
  const Outcome outcome = stream({"Hello EN", "D_OF", "_TURN more"}, {"END_OF_TURN"});
  EXPECT_EQ(outcome.parts, (std::vector<std::string>{"Hello ", "", "", ""}));
  EXPECT_EQ(outcome.stop, 0u);
}

// case A2
TEST(TextStream, text_held_for_a_stop_string_is_flushed) {
  EXPECT_EQ(stream({"a EN", "D_O"}, {"END_OF"}).parts,
            (std::vector<std::string>{"a ", "", "END_O"}));
}

TEST(TextStream, stop_string_that_is_complete_first_wins) {
  const Outcome outcome = stream({"xabcd"}, {"abcd", "bc"});
  EXPECT_EQ(outcome.stop, 1u);
  EXPECT_EQ(outcome.text, "xa");
}

TEST(TextStream, stop_strings_before_min_tokens_are_plain_text) {
  const PieceTokenizer tokenizer({"a E", "ND b", " END c"});
  TextStream text_stream(tokenizer, {"END"});
  EXPECT_EQ(text_stream.push(0, false).text, "a ");
  EXPECT_EQ(text_stream.push(1, false).text, "END b");
  const TextStream::Piece piece = text_stream.push(2, true);
  EXPECT_EQ(piece.text, " ");
  EXPECT_EQ(piece.stop, 0u);
}

TEST(TextStream, added_space_goes_only_at_a_texts_start) {
  const std::vector<std::string> pieces = {"", " Hello", " world"};
  TextStreamOptions start;
  start.at_text_start = true;
  EXPECT_EQ(stream(pieces, {}, start, true).text, "Hello world");
  EXPECT_EQ(stream(pieces, {}, {}, true).text, " Hello world");
  EXPECT_EQ(stream(pieces, {}, start, false).text, " Hello world");
}

TEST(TextStream, hostile_stop_string_takes_linear_time) {
  const std::string stop = std::string(20000, 'a') + "b";
  const std::vector<std::string> pieces(2000, std::string(1000, 'a'));
  const Outcome outcome = stream(pieces, {stop, stop.substr(7)});
  EXPECT_EQ(outcome.text.size(), 2000u * 1000);
}

TEST(Utf8, invalid_bytes_become_what_python_makes_of_them) {
  // bytes.decode("utf-8", "replace") of CPython 3.11
  EXPECT_EQ(replaced("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(replaced("\xE0\x9F\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replaced("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replaced("\xF4\x91\x92\x93"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replaced("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                     "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFD"
            "A");
  EXPECT_EQ(replaced("\xF0\x9F\x98"), "\uFFFD");
}

RC_GTEST_PROP(Utf8, every_code_point_reads_as_written, ()) {
  const uint32_t code_point = *rc::gen::suchThat(
      rc::gen::inRange<uint32_t>(0, 0x110000), [](uint32_t c) { return c < 0xD800 || c > 0xDFFF; });
  std::string text;
  append_utf8(text, code_point);
  const Utf8Step step = read_utf8(text, 0);
  RC_ASSERT(step.kind == Utf8Kind::kValid);
  RC_ASSERT(step.bytes == text.size());
  RC_ASSERT(step.code_point == code_point);
}

}  // namespace
}  // namespace spillway::model
