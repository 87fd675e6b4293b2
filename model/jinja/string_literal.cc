#include "model/jinja/string_literal.h"

#include <cstdio>

#include "model/jinja/run.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (text_[at_] != '\\') {
        out_ += text_[at_++];
      } else if (++at_ == text_.size()) {
        fail("\\ at end of string");
      } else {
        escape(text_[at_]);
      }
    }
    return std::move(out_);
  }

 private:
  void escape(char c) {
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
      out_ += kTo[simple];
      ++at_;
    } else if (c == '\n') {
      ++at_;
    } else if (c >= '0' && c <= '7') {
      octal();
    } else if (c == 'x' || c == 'u' || c == 'U') {
      hexadecimal(c);
    } else if (c == 'N') {
      fail("\\N{name} escapes are not supported: write the character or \\u and its number");
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      spelled_out();
    } else {
      out_ += '\\';
      out_ += c;
      ++at_;
    }
  }

  void octal() {
    char32_t value = 0;
    for (int i = 0; i < 3 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
      value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
    }
    append_utf8(out_, value);
  }

  void hexadecimal(char kind) {
    const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
    char32_t value = 0;
    ++at_;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const int digit = at_ < text_.size() ? hex_digit(text_[at_]) : -1;
      if (digit < 0) fail("truncated \\" + std::string(1, kind) + " escape");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10FFFF) fail("illegal Unicode character in an escape");
    if (value >= 0xD800 && value <= 0xDFFF) fail("a surrogate in an escape is not a character");
    append_utf8(out_, value);
  }

  // jinja2 writes the literal as ASCII first, so a backslash before such a character meets the
  // character's own escape and leaves its letters.
  void spelled_out() {
    const char32_t point = next_point(text_, at_);
    char buffer[16];
    const char* format = point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x";
    std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(point));
    out_ += buffer;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string unescape_literal(std::string_view text) { return Unescaper(text).run(); }

}  // namespace spillway::model::jinja
