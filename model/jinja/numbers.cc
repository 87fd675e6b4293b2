#include "model/jinja/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "model/jinja/run.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

[[noreturn]] void fail_overflow() { fail("integer overflow: integers of templates have 64 bits"); }

std::string_view trim(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size()) {
    size_t at = begin;
    if (!is_space(next_point(text, at))) break;
    begin = at;
  }
  text.remove_prefix(begin);
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    size_t at = last;
    if (!is_space(next_point(text, at))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

// Drops single underscores between digits; nothing when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  const auto alnum = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !alnum(text[i - 1]) || !alnum(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto result =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* from = text.data() + e + 1;
  if (*from == '+') ++from;
  std::from_chars(from, text.data() + text.size(), exponent);
  std::string sign;
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    std::snprintf(buffer, sizeof buffer, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + buffer;
  }
  if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

double round_to(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) {
    const std::string text = format_float(value, 'f', static_cast<int>(digits), false);
    return std::strtod(text.c_str(), nullptr);
  }
  // Rounds to a power of ten: the decimal digits of the integer part decide, exactly.
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  const double quotient = value / scale;
  double rounded = std::round(quotient);
  if (std::fabs(quotient - rounded) == 0.5) rounded = 2.0 * std::round(quotient / 2.0);
  return rounded * scale;
}

std::string format_float(double value, char type, int digits, bool alternate) {
  const char format[] = {'%',
                         alternate ? '#' : '.',
                         alternate ? '.' : '*',
                         alternate ? '*' : type,
                         alternate ? type : '\0',
                         '\0'};
  const int needed = std::snprintf(nullptr, 0, format, digits, value);
  std::vector<char> buffer(static_cast<size_t>(needed) + 1);
  std::snprintf(buffer.data(), buffer.size(), format, digits, value);
  return {buffer.data(), static_cast<size_t>(needed)};
}

std::optional<int64_t> parse_int(std::string_view text, int base) {
  const auto cleaned = without_underscores(trim(text));
  if (!cleaned || cleaned->empty()) return std::nullopt;
  std::string_view rest = *cleaned;
  bool negative = false;
  if (rest[0] == '+' || rest[0] == '-') {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  int found = 10;
  if (rest.size() > 1 && rest[0] == '0') {
    const char c = static_cast<char>(rest[1] | 0x20);
    found = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
  }
  if (found != 10 && (base == 0 || base == found)) {
    rest.remove_prefix(2);
    base = found;
  }
  if (base == 0) base = 10;
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return std::nullopt;
  uint64_t magnitude = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), magnitude, base);
  if (result.ptr != rest.data() + rest.size()) return std::nullopt;
  const uint64_t bound = negative ? uint64_t{1} << 63 : (uint64_t{1} << 63) - 1;
  if (result.ec == std::errc::result_out_of_range || magnitude > bound) fail_overflow();
  if (result.ec != std::errc()) return std::nullopt;
  return static_cast<int64_t>(negative ? ~magnitude + 1 : magnitude);
}

std::optional<double> parse_float(std::string_view text) {
  const auto cleaned = without_underscores(trim(text));
  if (!cleaned || cleaned->empty()) return std::nullopt;
  std::string_view rest = *cleaned;
  bool negative = false;
  if (rest[0] == '+' || rest[0] == '-') {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return std::nullopt;
  std::string lower;
  for (const char c : rest) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = HUGE_VAL;
  } else if (lower == "nan") {
    value = NAN;
  } else {
    if (lower.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
    char* end = nullptr;
    value = std::strtod(lower.c_str(), &end);
    if (end != lower.c_str() + lower.size()) return std::nullopt;
  }
  return negative ? -value : value;
}

int64_t add(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) fail_overflow();
  return result;
}

int64_t subtract(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
  return result;
}

int64_t multiply(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
  return result;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) return subtract(0, a);
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

int64_t modulo(int64_t a, int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) return 0;
  const int64_t remainder = a % b;
  return (remainder != 0 && (remainder < 0) != (b < 0)) ? remainder + b : remainder;
}

int64_t power(int64_t base, int64_t exponent) {
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) result = multiply(result, base);
  return result;
}

double float_floor_divide(double a, double b) {
  if (b == 0) fail("float floor division by zero");
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

double float_modulo(double a, double b) {
  if (b == 0) fail("float modulo");
  double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  if ((b < 0) != (remainder < 0)) remainder += b;
  return remainder;
}

double float_power(double a, double b) {
  if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(b) && b != std::floor(b)) {
    fail("a negative number cannot be raised to a fractional power: templates have no complex");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    fail("the result of ** is too large");
  }
  return result;
}

int64_t truncate_to_int(double value) {
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (std::isinf(value)) fail("cannot convert float infinity to integer");
  if (value >= 9223372036854775808.0 || value < -9223372036854775808.0) fail_overflow();
  return static_cast<int64_t>(value);
}

}  // namespace spillway::model::jinja
