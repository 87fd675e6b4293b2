#include "model/jinja/format_spec.h"

#include <cmath>
#include <optional>

#include "model/jinja/numbers.h"
#include "model/jinja/printing.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

constexpr int64_t kWidthMax = 1'000'000;

struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = '\0';
  int64_t precision = -1;
  char type = '\0';
};

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

std::optional<int64_t> take_number(std::string_view& rest) {
  size_t digits = 0;
  int64_t value = 0;
  while (digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9') {
    value = std::min(value * 10 + (rest[digits++] - '0'), kWidthMax + 1);
  }
  if (digits == 0) return std::nullopt;
  if (value > kWidthMax) fail("a format's width or precision is at most 1000000 in templates");
  rest.remove_prefix(digits);
  return value;
}

bool take(std::string_view& rest, char c) {
  if (!rest.starts_with(c)) return false;
  rest.remove_prefix(1);
  return true;
}

Spec parse(std::string_view rest) {
  Spec spec;
  if (!rest.empty()) {
    size_t first = 0;
    next_point(rest, first);
    if (first < rest.size() && is_align(rest[first])) {
      spec.fill = std::string(rest.substr(0, first));
      spec.align = rest[first];
      rest.remove_prefix(first + 1);
    } else if (is_align(rest[0])) {
      spec.align = rest[0];
      rest.remove_prefix(1);
    }
  }
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-' || rest[0] == ' ')) {
    spec.sign = rest[0];
    rest.remove_prefix(1);
  }
  spec.alternate = take(rest, '#');
  if (take(rest, '0')) {
    spec.zero = true;
    if (spec.align == '\0') spec.fill = "0";
  }
  spec.width = take_number(rest).value_or(0);
  if (rest.starts_with(',') || rest.starts_with('_')) {
    spec.grouping = rest[0];
    rest.remove_prefix(1);
  }
  if (take(rest, '.')) {
    const auto precision = take_number(rest);
    if (!precision) fail("Format specifier missing precision");
    spec.precision = *precision;
  }
  if (!rest.empty()) {
    spec.type = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty()) fail("Invalid format specifier");
  return spec;
}

std::string pad(Run& run, const Spec& spec, const std::string& prefix, const std::string& body,
                char default_align) {
  const int64_t size = count_points(prefix) + count_points(body);
  const int64_t missing = std::max<int64_t>(spec.width - size, 0);
  char align = spec.align != '\0' ? spec.align : default_align;
  if (spec.align == '\0' && spec.zero) align = default_align == '<' ? '<' : '=';
  int64_t left = 0;
  if (align == '>' || align == '=') left = missing;
  if (align == '^') left = missing / 2;
  run.charge(static_cast<size_t>(missing) * spec.fill.size() + prefix.size() + body.size());
  std::string out;
  if (align == '=') out += prefix;
  for (int64_t i = 0; i < left; ++i) out += spec.fill;
  if (align != '=') out += prefix;
  out += body;
  for (int64_t i = left; i < missing; ++i) out += spec.fill;
  return out;
}

// Digits with a separator every `group` from the right; with zero fill, zeros join in up to the
// width.
std::string grouped(const Spec& spec, std::string digits, int64_t group, int64_t others) {
  if (spec.grouping == '\0') return digits;
  const auto commas = [&](int64_t count) { return (count - 1) / group; };
  if (spec.zero && spec.align == '\0') {
    auto count = static_cast<int64_t>(digits.size());
    while (count + commas(count) + others < spec.width) {
      digits.insert(digits.begin(), '0');
      ++count;
    }
  }
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % static_cast<size_t>(group) == 0) out += spec.grouping;
    out += digits[i];
  }
  return out;
}

std::string sign_of(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string format_integer(Run& run, const Spec& spec, int64_t value) {
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      fail("%c arg not in range(0x110000)");
    }
    std::string utf8;
    append_utf8(utf8, static_cast<char32_t>(value));
    return pad(run, spec, "", utf8, '<');
  }
  unsigned base = 10;
  if (spec.type == 'b') base = 2;
  if (spec.type == 'o') base = 8;
  if (spec.type == 'x' || spec.type == 'X') base = 16;
  if (base != 10 && spec.grouping == ',') {
    fail("Cannot specify ',' with '" + std::string(1, spec.type) + "'.");
  }
  const char* const alphabet = spec.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  uint64_t rest = value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  for (; rest > 0 || digits.empty(); rest /= base) {
    digits.insert(digits.begin(), alphabet[rest % base]);
  }
  std::string prefix = sign_of(spec, value < 0);
  if (spec.alternate && base != 10) prefix += std::string("0") + spec.type;
  run.charge(static_cast<size_t>(spec.width));
  digits = grouped(spec, digits, base == 10 ? 3 : 4, static_cast<int64_t>(prefix.size()));
  return pad(run, spec, prefix, digits, '>');
}

// Without a type a float shows at least one digit after the point.
std::string shortest(double value, int64_t precision) {
  if (precision < 0) return float_repr(value);
  const int digits = static_cast<int>(std::max<int64_t>(precision, 1));
  std::string text = format_float(value, 'g', digits, false);
  if (!std::isfinite(value)) return text;
  const size_t e = text.find('e');
  if (e == std::string::npos) {
    if (text.find('.') == std::string::npos) {
      const auto whole = static_cast<int64_t>(text.size()) - (text[0] == '-');
      if (whole >= digits) return format_float(value, 'e', digits - 1, false);
      text += ".0";
    }
    return text;
  }
  return text;
}

std::string format_real(Run& run, const Spec& spec, double value) {
  std::string text;
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  run.charge(static_cast<size_t>(precision) + 400);
  switch (spec.type) {
    case '\0':
      text = shortest(value, spec.precision);
      break;
    case '%':
      text = format_float(value * 100, 'f', precision, spec.alternate) + "%";
      break;
    case 'n':
      text = format_float(value, 'g', precision, spec.alternate);
      break;
    default:
      text = format_float(value, spec.type, precision, spec.alternate);
  }
  const bool negative = text[0] == '-';
  if (negative) text.erase(0, 1);
  const std::string prefix = sign_of(spec, negative);
  const size_t whole = text.find_first_not_of("0123456789");
  if (whole != 0) {
    const std::string tail = whole == std::string::npos ? "" : text.substr(whole);
    run.charge(static_cast<size_t>(spec.width));
    text =
        grouped(spec, text.substr(0, whole), 3, static_cast<int64_t>(prefix.size() + tail.size())) +
        tail;
  }
  return pad(run, spec, prefix, text, '>');
}

std::string format_text(Run& run, const Spec& spec, const Value& value) {
  if (spec.type != '\0' && spec.type != 's') {
    fail("Unknown format code '" + std::string(1, spec.type) + "' for object of type 'str'");
  }
  if (spec.sign != '-') fail("Sign not allowed in string format specifier");
  if (spec.alternate) fail("Alternate form (#) not allowed in string format specifier");
  if (spec.align == '=') fail("'=' alignment not allowed in string format specifier");
  if (spec.grouping != '\0') fail("Cannot specify ',' with 's'.");
  std::string text = value.text();
  if (spec.precision >= 0) text.resize(byte_offset(text, spec.precision));
  return pad(run, spec, "", text, '<');
}

}  // namespace

std::string format_value(Run& run, const Value& value, std::string_view spec_text) {
  run.step();
  if (spec_text.empty()) return to_text(run, value);
  if (!value.is_string() && !value.is_number()) {
    fail("unsupported format string passed to " + type_name(value) + ".__format__");
  }
  const Spec spec = parse(spec_text);
  if (value.is_string()) return format_text(run, spec, value);
  if (value.is(Kind::kBigInt)) fail("so large an integer cannot take a format");
  static constexpr std::string_view kIntegerTypes = "bcdoxXn";
  static constexpr std::string_view kRealTypes = "eEfFgG%";
  const bool is_float = value.is(Kind::kFloat);
  if (!is_float && (spec.type == '\0' || kIntegerTypes.find(spec.type) != std::string::npos)) {
    return format_integer(run, spec, value.as_int());
  }
  const bool real = kRealTypes.find(spec.type) != std::string::npos ||
                    (is_float && (spec.type == '\0' || spec.type == 'n'));
  if (!real) {
    fail("Unknown format code '" + std::string(1, spec.type) + "' for object of type '" +
         type_name(value) + "'");
  }
  return format_real(run, spec, value.as_double());
}

}  // namespace spillway::model::jinja
