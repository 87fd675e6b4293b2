#include "model/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "model/jinja/numbers.h"
#include "model/jinja/printing.h"
#include "model/jinja/string_literal.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

constexpr std::string_view kIntegerMax = "9223372036854775807";

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

size_t skip_spaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!is_space(next_point(text, next))) break;
    at = next;
  }
  return at;
}

// All line ends become \n, and one at the very end goes.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) data();
    push(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  enum class Tag : uint8_t { kNone, kVariable, kBlock, kComment, kRaw };

  [[noreturn]] void fail_at(const std::string& message) const { throw Failure{message, line_}; }

  bool at(size_t position, std::string_view wanted) const {
    return text_.substr(std::min(position, text_.size())).starts_with(wanted);
  }

  void push(TokenType type, std::string text, Value number = {}) {
    tokens_.push_back({type, line_, std::move(text), std::move(number)});
  }

  // Moves to `end`, counting lines.
  void advance(size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    line_starting_ = end > at_ && text_[end - 1] == '\n';
    at_ = end;
  }

  // Text up to the next tag, then the tag.
  void data() {
    size_t open = at_;
    Tag tag = Tag::kNone;
    for (; tag == Tag::kNone; ++open) {
      open = text_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= text_.size()) break;
      const char c = text_[open + 1];
      tag = c == '{'   ? Tag::kVariable
            : c == '%' ? Tag::kBlock
            : c == '#' ? Tag::kComment
                       : Tag::kNone;
      if (tag != Tag::kNone) break;
    }
    if (tag == Tag::kNone) {
      push(TokenType::kData, std::string(text_.substr(at_)));
      advance(text_.size());
      return;
    }
    size_t inside = open + 2;
    const char sign = inside < text_.size() ? text_[inside] : '\0';
    if (sign == '-' || sign == '+') ++inside;
    size_t raw_begin = 0;
    if (tag == Tag::kBlock && (raw_begin = raw_tag_end(inside)) != 0) tag = Tag::kRaw;
    emit_data(text_.substr(at_, open - at_), sign, tag != Tag::kVariable);
    advance(tag == Tag::kRaw ? raw_begin : inside);
    if (tag == Tag::kComment) return comment();
    if (tag == Tag::kRaw) return raw();
    const bool block = tag == Tag::kBlock;
    push(block ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
    expression(block);
  }

  // "-" before a tag drops the spaces before it; otherwise a block alone at the start of its line
  // takes that line's spaces along (lstrip_blocks).
  void emit_data(std::string_view data, char sign, bool may_lstrip) {
    if (sign == '-') {
      data = strip_spaces(data, {.left = false});
    } else if (sign != '+' && may_lstrip) {
      const size_t newline = data.rfind('\n');
      const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((start > 0 || line_starting_) && skip_spaces(data, start) == data.size()) {
        data = data.substr(0, start);
      }
    }
    if (!data.empty()) push(TokenType::kData, std::string(data));
  }

  // The end of a closing tag (for "%", "#" or "}") at `position`, with its whitespace control, or
  // 0 when none stands there.
  size_t tag_end(size_t position, char mark, bool plus, bool trim_newline) const {
    const std::array<char, 2> closing = {mark, '}'};
    const std::string_view close(closing.data(), closing.size());
    if (at(position, "-") && at(position + 1, close)) return skip_spaces(text_, position + 3);
    if (plus && at(position, "+") && at(position + 1, close)) return position + 3;
    if (!at(position, close)) return 0;
    return position + (trim_newline && at(position + 2, "\n") ? 3 : 2);
  }

  // With `inside` after "{%" and its sign: the end of a raw tag, or 0.
  size_t raw_tag_end(size_t inside) const {
    const size_t name = skip_spaces(text_, inside);
    if (!at(name, "raw")) return 0;
    return tag_end(skip_spaces(text_, name + 3), '%', false, false);
  }

  void comment() {
    for (size_t i = at_; i < text_.size(); ++i) {
      if (text_[i] != '#' && text_[i] != '-' && text_[i] != '+') continue;
      if (const size_t end = tag_end(i, '#', true, true)) return advance(end);
    }
    fail_at("Missing end of comment tag");
  }

  void raw() {
    for (size_t open = at_; (open = text_.find("{%", open)) != std::string_view::npos; ++open) {
      size_t inside = open + 2;
      const char sign = inside < text_.size() ? text_[inside] : '\0';
      if (sign == '-' || sign == '+') ++inside;
      const size_t name = skip_spaces(text_, inside);
      if (!at(name, "endraw")) continue;
      const size_t end = tag_end(skip_spaces(text_, name + 6), '%', true, true);
      if (end == 0) continue;
      emit_data(text_.substr(at_, open - at_), sign, true);
      return advance(end);
    }
    fail_at("Missing end of raw directive");
  }

  // Tokens up to the tag's end; an end inside brackets does not count.
  void expression(bool block) {
    std::string brackets;
    while (at_ < text_.size()) {
      if (brackets.empty()) {
        if (const size_t end = tag_end(at_, block ? '%' : '}', block, block)) {
          push(block ? TokenType::kBlockEnd : TokenType::kVariableEnd, "");
          return advance(end);
        }
      }
      const size_t after_spaces = skip_spaces(text_, at_);
      if (after_spaces != at_) {
        advance(after_spaces);
      } else if (!number() && !name() && !string()) {
        operation(brackets);
      }
    }
  }

  // Digits with single underscores between them.
  size_t digits_end(size_t position, bool (*is_one)(char)) const {
    size_t end = position;
    while (end < text_.size()) {
      const size_t next = text_[end] == '_' && end > position ? end + 1 : end;
      if (next >= text_.size() || !is_one(text_[next])) break;
      end = next + 1;
    }
    return end;
  }

  bool number() {
    if (!is_ascii_digit(text_[at_])) return false;
    const size_t whole = digits_end(at_, is_ascii_digit);
    size_t end = whole;
    if (at(end, ".")) {
      const size_t fraction = digits_end(end + 1, is_ascii_digit);
      if (fraction > end + 1) end = fraction;
    }
    if (end < text_.size() && (text_[end] | 0x20) == 'e') {
      const size_t digits = end + 1 + (at(end + 1, "+") || at(end + 1, "-") ? 1 : 0);
      const size_t exponent = digits_end(digits, is_ascii_digit);
      if (exponent > digits) end = exponent;
    }
    // "." before digits makes them an index (items.0), never a float.
    if (end > whole && (at_ == 0 || text_[at_ - 1] != '.')) {
      const auto value = parse_float(text_.substr(at_, end - at_));
      push(TokenType::kFloat, std::string(text_.substr(at_, end - at_)),
           Value::floating(value.value_or(0)));
      advance(end);
      return true;
    }
    integer(whole);
    return true;
  }

  void integer(size_t decimal_end) {
    size_t end = decimal_end;
    int base = 10;
    if (text_[at_] == '0') {
      const char mark = static_cast<char>(at_ + 1 < text_.size() ? text_[at_ + 1] | 0x20 : 0);
      bool (*is_one)(char) = nullptr;
      if (mark == 'b') is_one = [](char c) { return c == '0' || c == '1'; };
      if (mark == 'o') is_one = [](char c) { return c >= '0' && c <= '7'; };
      if (mark == 'x') is_one = [](char c) { return std::isxdigit(static_cast<int>(c)) != 0; };
      const size_t from = at_ + 2 + (is_one != nullptr && at(at_ + 2, "_") ? 1 : 0);
      const size_t based = is_one == nullptr ? 0 : digits_end(from, is_one);
      if (is_one != nullptr && based > from) {
        end = based;
        base = 0;
      } else {  // a zero stands alone: only zeros may follow it
        end = digits_end(at_, [](char c) { return c == '0'; });
      }
    }
    std::string digits(text_.substr(at_, end - at_));
    std::erase(digits, '_');
    if (base == 10 && (digits.size() > 19 || (digits.size() == 19 && digits > kIntegerMax))) {
      push(TokenType::kInteger, digits, Value::big_integer(digits));
    } else {
      const auto value = parse_int(digits, base);
      push(TokenType::kInteger, digits, Value::integer(value.value_or(0)));
    }
    advance(end);
  }

  bool name() {
    size_t end = at_;
    size_t next = at_;
    while (end < text_.size()) {
      const char32_t point = next_point(text_, next);
      if (point != '_' && !is_identifier_part(point) && !is_alphabetic(point) &&
          !is_numeric(point)) {
        break;
      }
      end = next;
    }
    if (end == at_) return false;
    bool valid = true;
    for (size_t i = at_; i < end;) {
      const bool first = i == at_;
      const char32_t point = next_point(text_, i);
      valid = valid && (first ? is_identifier_start(point) : is_identifier_part(point));
    }
    if (!valid) fail_at("Invalid character in identifier");
    push(TokenType::kName, std::string(text_.substr(at_, end - at_)));
    advance(end);
    return true;
  }

  bool string() {
    const char quote = text_[at_];
    if (quote != '"' && quote != '\'') return false;
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail_at("a string is not closed");
    try {
      push(TokenType::kString, unescape_literal(text_.substr(at_ + 1, end - at_ - 1)));
    } catch (Failure& failure) {
      failure.line = line_;
      throw;
    }
    advance(end + 1);
    return true;
  }

  void operation(std::string& brackets) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view sign : kOperators) {
      if (!at(at_, sign)) continue;
      const char c = sign[0];
      if (c == '(') brackets += ')';
      if (c == '[') brackets += ']';
      if (c == '{') brackets += '}';
      if (c == ')' || c == ']' || c == '}') {
        if (brackets.empty()) fail_at("unexpected '" + std::string(sign) + "'");
        if (brackets.back() != c) {
          fail_at("unexpected '" + std::string(sign) + "', expected '" + brackets.back() + "'");
        }
        brackets.pop_back();
      }
      push(TokenType::kOperator, std::string(sign));
      return advance(at_ + sign.size());
    }
    size_t end = at_;
    next_point(text_, end);
    fail_at("unexpected char " + quoted(text_.substr(at_, end - at_)));
  }

  std::string source_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template data / text";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kString:
      return "string";
    case TokenType::kEnd:
      return "end of template";
    default:
      return token.text;
  }
}

}  // namespace spillway::model::jinja
