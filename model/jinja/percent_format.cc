// printf-style formatting: "%s has %d" % (name, count).
#include <cstdlib>

#include "model/jinja/numbers.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

constexpr int64_t kWidthMax = 1'000'000;

struct Spec {
  bool left = false, plus = false, space = false, alternate = false, zero = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 's';
};

class Formatter {
 public:
  Formatter(Run& run, std::string_view format, const Value& arguments, bool escape)
      : run_(run), format_(format), arguments_(arguments), escape_(escape) {
    is_tuple_ = arguments.is(Kind::kTuple);
    is_mapping_ = arguments.is(Kind::kDict) || arguments.is(Kind::kList) ||
                  arguments.is(Kind::kRange) || arguments.is_undefined();
  }

  std::string run_all() {
    while (at_ < format_.size()) {
      const size_t percent = format_.find('%', at_);
      const size_t end = percent == std::string_view::npos ? format_.size() : percent;
      run_.charge(end - at_);
      out_ += format_.substr(at_, end - at_);
      at_ = end;
      if (at_ < format_.size()) conversion();
    }
    const size_t supplied = is_tuple_ ? arguments_.items().size() : 1;
    if (!is_mapping_ && used_ < supplied) {
      fail("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) fail("incomplete format");
    return format_[at_];
  }

  const Value& next_argument() {
    const size_t supplied = is_tuple_ ? arguments_.items().size() : 1;
    if (used_ >= supplied) fail("not enough arguments for format string");
    return is_tuple_ ? arguments_.items()[used_++] : (++used_, arguments_);
  }

  int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value& value = next_argument();
      if (!value.is_small_int()) fail("* wants int");
      return value.as_int();
    }
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = std::min<int64_t>(value * 10 + (format_[at_++] - '0'), kWidthMax + 1);
    }
    return value;
  }

  void conversion() {
    ++at_;
    run_.step();
    const Value* argument = nullptr;
    if (peek() == '(') argument = &keyed();
    Spec spec;
    for (;; ++at_) {
      const char c = peek();
      if (c == '-')
        spec.left = true;
      else if (c == '+')
        spec.plus = true;
      else if (c == ' ')
        spec.space = true;
      else if (c == '#')
        spec.alternate = true;
      else if (c == '0')
        spec.zero = true;
      else
        break;
    }
    spec.width = number();
    if (spec.width < 0) {
      spec.left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(number(), 0);
    }
    if (spec.width > kWidthMax || spec.precision > kWidthMax) {
      fail("a format's width or precision is at most 1000000 in templates");
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    spec.type = format_[at_++];
    if (spec.type == '%') {
      out_ += '%';
      return;
    }
    convert(spec, argument != nullptr ? *argument : next_argument());
  }

  const Value& keyed() {
    int depth = 1;
    const size_t begin = ++at_;
    for (; depth > 0; ++at_) {
      if (at_ >= format_.size()) fail("incomplete format key");
      depth += format_[at_] == '(' ? 1 : format_[at_] == ')' ? -1 : 0;
    }
    if (!arguments_.is(Kind::kDict)) fail("format requires a mapping");
    const std::string key(format_.substr(begin, at_ - 1 - begin));
    const Value* found = arguments_.as_dict().find(std::string_view(key));
    if (found == nullptr) fail("the mapping of a format has no key " + quoted(key));
    return *found;
  }

  void convert(const Spec& spec, const Value& value) {
    switch (spec.type) {
      case 's':
        return text(spec, escape_ ? to_html(run_, value) : to_text(run_, value));
      case 'r':
      case 'a':
        return text(spec, to_repr(run_, value));
      case 'c':
        return character(spec, value);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return integer(spec, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return floating(spec, value);
      default:
        fail("unsupported format character '" + std::string(1, spec.type) + "'");
    }
  }

  void text(const Spec& spec, std::string text) {
    if (spec.precision >= 0) text.resize(byte_offset(text, spec.precision));
    pad(spec, "", text, false);
  }

  void character(const Spec& spec, const Value& value) {
    if (value.is_string() && value.as_string().characters == 1) {
      return pad(spec, "", value.text(), false);
    }
    if (!value.is_small_int()) fail("%c requires int or char");
    const int64_t point = value.as_int();
    if (point < 0 || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
      fail("%c arg not in range(0x110000), or a surrogate");
    }
    std::string utf8;
    append_utf8(utf8, static_cast<char32_t>(point));
    pad(spec, "", utf8, false);
  }

  std::string_view sign(const Spec& spec, bool negative) const {
    return negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
  }

  void integer(const Spec& spec, const Value& value) {
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is_small_int() && !(decimal && value.is(Kind::kFloat))) {
      if (value.is_undefined()) fail_undefined(value);
      if (decimal && value.is(Kind::kBigInt)) {
        const bool negative = value.digits()[0] == '-';
        return pad(spec, std::string(sign(spec, negative)), value.digits().substr(negative ? 1 : 0),
                   true);
      }
      fail("%" + std::string(1, spec.type) + " format: " +
           (decimal ? "a real number" : "an integer") + " is required, not " + type_name(value));
    }
    const int64_t number =
        value.is(Kind::kFloat) ? truncate_to_int(value.as_double()) : value.as_int();
    const uint64_t magnitude =
        number < 0 ? ~static_cast<uint64_t>(number) + 1 : static_cast<uint64_t>(number);
    const unsigned base = spec.type == 'o' ? 8 : decimal ? 10 : 16;
    const char* const alphabet = spec.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    std::string digits;
    for (uint64_t rest = magnitude; rest > 0 || digits.empty(); rest /= base) {
      digits.insert(digits.begin(), alphabet[rest % base]);
    }
    if (spec.precision > static_cast<int64_t>(digits.size())) {
      run_.charge(static_cast<size_t>(spec.precision));
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    std::string prefix(sign(spec, number < 0));
    if (spec.alternate && !decimal) prefix += std::string("0") + spec.type;
    pad(spec, prefix, digits, true);
  }

  void floating(const Spec& spec, const Value& value) {
    if (!value.is_small_int() && !value.is(Kind::kFloat)) {
      if (value.is_undefined()) fail_undefined(value);
      fail("must be real number, not " + type_name(value));
    }
    const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
    run_.charge(static_cast<size_t>(precision) + 400);
    std::string digits =
        format_float(value.as_double(), spec.type, static_cast<int>(precision), spec.alternate);
    const bool negative = digits[0] == '-';
    if (negative) digits.erase(0, 1);
    pad(spec, std::string(sign(spec, negative)), digits, true);
  }

  void pad(const Spec& spec, const std::string& prefix, const std::string& body, bool number) {
    const int64_t size = count_points(prefix) + count_points(body);
    const auto fill = static_cast<size_t>(std::max<int64_t>(spec.width - size, 0));
    run_.charge(prefix.size() + body.size() + fill);
    if (spec.left) {
      out_ += prefix + body + std::string(fill, ' ');
    } else if (spec.zero && number) {
      out_ += prefix + std::string(fill, '0') + body;
    } else {
      out_ += std::string(fill, ' ') + prefix + body;
    }
  }

  Run& run_;
  std::string_view format_;
  const Value& arguments_;
  bool escape_;
  bool is_tuple_;
  bool is_mapping_;
  size_t at_ = 0;
  size_t used_ = 0;
  std::string out_;
};

}  // namespace

std::string percent_format(Run& run, std::string_view format, const Value& arguments, bool escape) {
  return Formatter(run, format, arguments, escape).run_all();
}

}  // namespace spillway::model::jinja
