// Python's numbers as text: repr of floats, int() and float() of strings, int arithmetic that says
// when it would leave 64 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway::model::jinja {

// The shortest digits that read back as the same double, in Python's layout: 1.0, 1e+16, 0.0001.
std::string float_repr(double value);

// round(value, digits) as Python does it: exact decimal, ties to even of the true value.
double round_to(double value, int64_t digits);

// "%.{digits}f", "e" or "g" with C's meaning, which is Python's.
std::string format_float(double value, char type, int digits, bool alternate);

// int(text, base) and float(text): surrounding spaces and single underscores are fine.
std::optional<int64_t> parse_int(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

// Each throws when the result leaves 64 bits, or on division by zero.
int64_t add(int64_t a, int64_t b);
int64_t subtract(int64_t a, int64_t b);
int64_t multiply(int64_t a, int64_t b);
int64_t floor_divide(int64_t a, int64_t b);
int64_t modulo(int64_t a, int64_t b);           // the divisor's sign
int64_t power(int64_t base, int64_t exponent);  // REQUIRES: exponent >= 0

double float_floor_divide(double a, double b);
double float_modulo(double a, double b);
double float_power(double a, double b);

// The float as an int, as int(value) cuts it; throws on nan, inf and what leaves 64 bits.
int64_t truncate_to_int(double value);

}  // namespace spillway::model::jinja
