// Filters about numbers, and `default`.
#include <cmath>

#include "model/jinja/filters.h"
#include "model/jinja/iterate.h"
#include "model/jinja/numbers.h"
#include "model/jinja/operators.h"
#include "model/jinja/parameters.h"
#include "model/jinja/printing.h"
#include "model/jinja/text.h"

namespace spillway::model::jinja {
namespace {

Value abs_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "abs", arguments, {});
  if (input.is_small_int()) {
    return input.as_int() < 0 ? negate(run, input) : Value::integer(input.as_int());
  }
  if (input.is(Kind::kFloat)) return Value::floating(std::fabs(input.as_double()));
  if (input.is_undefined()) fail_undefined(input);
  fail("bad operand type for abs(): '" + type_name(input) + "'");
}

Value default_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "default", arguments, {"default_value", "boolean"});
  if (input.is_undefined() || (p.flag(1, false) && !truthy(run, input))) {
    return p.has(0) ? p.at(0) : Value::string("");
  }
  return input;
}

// The float a str or number reads as; nothing when it does not.
std::optional<double> to_float(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_string()) return parse_float(value.text());
  if (value.is_small_int() || value.is(Kind::kFloat)) return value.as_double();
  if (value.is(Kind::kBigInt)) return parse_float(value.digits());
  return std::nullopt;
}

Value int_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "int", arguments, {"default", "base"});
  const int64_t base = p.integer(1, 10);
  if (input.is_small_int()) return Value::integer(input.as_int());
  if (input.is(Kind::kBigInt)) return input;
  if (input.is_string() && (base == 0 || (base >= 2 && base <= 36))) {
    if (const auto value = parse_int(input.text(), static_cast<int>(base))) {
      return Value::integer(*value);
    }
  }
  const auto real = to_float(input);
  if (!real || std::isnan(*real)) return p.value(0, Value::integer(0));
  return Value::integer(truncate_to_int(*real));
}

Value float_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "float", arguments, {"default"});
  const auto real = to_float(input);
  return real ? Value::floating(*real) : p.value(0, Value::floating(0.0));
}

// round(int, digits): only negative digits change it; ties go to even.
Value round_int(int64_t value, int64_t digits) {
  if (digits >= 0) return Value::integer(value);
  if (digits < -18) return Value::integer(0);
  const int64_t scale = power(10, -digits);
  const int64_t remainder = modulo(value, scale);
  const int64_t below = subtract(value, remainder);
  const int64_t twice = remainder - (scale - remainder);
  const bool odd = (below / scale) % 2 != 0;
  return Value::integer(twice > 0 || (twice == 0 && odd) ? add(below, scale) : below);
}

Value round_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "round", arguments, {"precision", "method"});
  const std::string method = p.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("method must be common, ceil or floor");
  }
  if (input.is_undefined()) fail_undefined(input);
  if (!input.is_small_int() && !input.is(Kind::kFloat)) {
    fail("type " + type_name(input) + " doesn't define __round__ method");
  }
  const int64_t digits = p.has(0) && p.at(0).is_none() ? 0 : p.integer(0, 0);
  if (method == "common") {
    if (input.is_small_int()) return round_int(input.as_int(), digits);
    if (p.has(0) && p.at(0).is_none()) {
      return Value::integer(truncate_to_int(round_to(input.as_double(), 0)));
    }
    return Value::floating(round_to(input.as_double(), digits));
  }
  const Value scale = power(run, Value::integer(10), Value::integer(digits));
  const Value scaled = multiply(run, input, scale);
  Value whole = scaled;
  if (scaled.is(Kind::kFloat)) {
    const double value = scaled.as_double();
    whole =
        Value::integer(truncate_to_int(method == "ceil" ? std::ceil(value) : std::floor(value)));
  }
  return divide(run, whole, scale);
}

Value sum(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "sum", arguments, {"attribute", "start"});
  const AttributePath path(run, p.value(0, Value::none()));
  Value total = p.value(1, Value::integer(0));
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  const auto source = iterate(run, input);
  while (const std::optional<Value> item = source->next(run)) {
    total = add(run, total, path.get(run, *item));
  }
  return total;
}

Value filesizeformat(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "filesizeformat", arguments, {"binary"});
  const auto bytes = to_float(input);
  if (!bytes) fail("filesizeformat: could not convert to float: " + to_repr(run, input));
  const bool binary = p.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return run.string("1 Byte");
  if (*bytes < base) return run.string(std::to_string(truncate_to_int(*bytes)) + " Bytes");
  static constexpr std::string_view kLetters = "KMGTPEZY";
  double unit = base;
  size_t index = 0;
  do {
    unit *= base;
  } while (*bytes >= unit && ++index < kLetters.size());
  index = std::min(index, kLetters.size() - 1);
  const char letter = !binary && index == 0 ? 'k' : kLetters[index];
  return run.string(format_float(base * *bytes / unit, 'f', 1, false) + " " + letter +
                    (binary ? "iB" : "B"));
}

constexpr Filter kFilters[] = {
    {"abs", abs_filter},         {"d", default_filter},
    {"default", default_filter}, {"filesizeformat", filesizeformat},
    {"float", float_filter},     {"int", int_filter},
    {"round", round_filter},     {"sum", sum},
};

}  // namespace

std::span<const Filter> number_filters() { return kFilters; }

}  // namespace spillway::model::jinja
