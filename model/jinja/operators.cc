#include "model/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "model/jinja/iterate.h"
#include "model/jinja/numbers.h"
#include "model/jinja/printing.h"
#include "model/jinja/text.h"

namespace spillway::model::jinja {
namespace {

[[noreturn]] void fail_operands(const char* sign, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) fail_undefined(*value);
    if (value->is(Kind::kBigInt)) fail("integer overflow: integers of templates have 64 bits");
  }
  fail("unsupported operand type(s) for " + std::string(sign) + ": '" + type_name(a) + "' and '" +
       type_name(b) + "'");
}

bool is_real(const Value& value) { return value.is_small_int() || value.is(Kind::kFloat); }

Value join_strings(Run& run, const Value& a, const Value& b) {
  run.charge(a.text().size() + b.text().size());
  if (!a.is_markup() && !b.is_markup()) return Value::string(a.text() + b.text());
  return Value::markup(to_html(run, a) + to_html(run, b));
}

Value join_items(Run& run, const Value& a, const Value& b) {
  run.step(static_cast<int64_t>(a.items().size() + b.items().size()));
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? run.list(std::move(items)) : run.tuple(std::move(items));
}

Value repeat(Run& run, const Value& value, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (value.is_string()) {
    const std::string& text = value.text();
    size_t bytes = 0;
    if (__builtin_mul_overflow(text.size(), times, &bytes)) bytes = SIZE_MAX / 2;
    run.charge(bytes);
    std::string out;
    out.reserve(bytes);
    for (size_t i = 0; i < times && !text.empty(); ++i) out += text;
    return value.is_markup() ? Value::markup(std::move(out)) : Value::string(std::move(out));
  }
  const std::vector<Value>& items = value.items();
  size_t bytes = 0;
  if (__builtin_mul_overflow(items.size() * sizeof(Value), times, &bytes)) bytes = SIZE_MAX / 2;
  run.charge(bytes);
  std::vector<Value> out;
  for (size_t i = 0; i < times && !items.empty(); ++i) {
    out.insert(out.end(), items.begin(), items.end());
  }
  return value.is(Kind::kList) ? run.list(std::move(out)) : run.tuple(std::move(out));
}

// -1, 0, 1; 2 where a NaN makes them incomparable.
int compare_numbers(const Value& a, const Value& b) {
  const auto sign = [](const Value& v) { return v.digits()[0] == '-' ? -1 : 1; };
  if (a.is(Kind::kBigInt) && b.is(Kind::kBigInt)) {
    if (sign(a) != sign(b)) return sign(a);
    const auto key = [](const Value& v) { return std::pair(v.digits().size(), v.digits()); };
    const int order = key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0;
    return order * sign(a);
  }
  if (a.is(Kind::kBigInt) && b.is_small_int()) return sign(a);
  if (b.is(Kind::kBigInt) && a.is_small_int()) return -sign(b);
  if (a.is_small_int() && b.is_small_int()) {
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  }
  if (same_key(a, b)) return 0;
  const auto real = [](const Value& v) {
    return v.is(Kind::kBigInt) ? std::strtod(v.digits().c_str(), nullptr) : v.as_double();
  };
  const double x = real(a);
  const double y = real(b);
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

bool equal_items(Run& run, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(run, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Run& run, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(run, value, *other)) return false;
  }
  return true;
}

bool equal_views(Run& run, const View& a, const View& b) {
  if (a.part != b.part || a.part == View::Part::kValues) return false;
  const Dict& x = a.dict.as_dict();
  const Dict& y = b.dict.as_dict();
  if (a.part == View::Part::kItems) return equal_dicts(run, x, y);
  return x.entries.size() == y.entries.size() &&
         std::all_of(x.entries.begin(), x.entries.end(),
                     [&](const Entry& e) { return y.find(e.first) != nullptr; });
}

// Orders two values by `<` or `<=`.
bool ordered(Run& run, const Value& a, const Value& b, bool or_equal) {
  const Nested nested(run);
  run.step();
  if (a.is_number() && b.is_number()) {
    const int order = compare_numbers(a, b);
    return order == -1 || (or_equal && order == 0);
  }
  if (a.is_string() && b.is_string()) {
    run.step(static_cast<int64_t>(std::min(a.text().size(), b.text().size()) / 64));
    const int order = a.text().compare(b.text());
    return order < 0 || (or_equal && order == 0);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const std::vector<Value>& x = a.items();
    const std::vector<Value>& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(run, x[i], y[i])) return ordered(run, x[i], y[i], or_equal);
    }
    return x.size() < y.size() || (or_equal && x.size() == y.size());
  }
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) fail_undefined(*value);
  }
  fail("'" + std::string(or_equal ? "<=" : "<") + "' not supported between instances of '" +
       type_name(a) + "' and '" + type_name(b) + "'");
}

}  // namespace

Value add(Run& run, const Value& a, const Value& b) {
  if (a.is_small_int() && b.is_small_int()) return Value::integer(add(a.as_int(), b.as_int()));
  if (is_real(a) && is_real(b)) return Value::floating(a.as_double() + b.as_double());
  if (a.is_string() && b.is_string()) return join_strings(run, a, b);
  if (a.is_sequence() && a.kind() == b.kind()) return join_items(run, a, b);
  if (a.is_markup() && !b.is_undefined()) return fail_operands("+", a, b), Value();
  if (a.is_string() && !b.is_undefined()) {
    fail("can only concatenate str (not \"" + type_name(b) + "\") to str");
  }
  fail_operands("+", a, b);
}

Value subtract(Run&, const Value& a, const Value& b) {
  if (a.is_small_int() && b.is_small_int()) {
    return Value::integer(subtract(a.as_int(), b.as_int()));
  }
  if (is_real(a) && is_real(b)) return Value::floating(a.as_double() - b.as_double());
  fail_operands("-", a, b);
}

Value multiply(Run& run, const Value& a, const Value& b) {
  if (a.is_small_int() && b.is_small_int()) {
    return Value::integer(multiply(a.as_int(), b.as_int()));
  }
  if (is_real(a) && is_real(b)) return Value::floating(a.as_double() * b.as_double());
  const auto repeatable = [](const Value& v) { return v.is_string() || v.is_sequence(); };
  if (repeatable(a) && b.is_small_int()) return repeat(run, a, b.as_int());
  if (repeatable(b) && a.is_small_int()) return repeat(run, b, a.as_int());
  fail_operands("*", a, b);
}

Value divide(Run&, const Value& a, const Value& b) {
  if (!is_real(a) || !is_real(b)) fail_operands("/", a, b);
  if (b.as_double() == 0) fail("division by zero");
  return Value::floating(a.as_double() / b.as_double());
}

Value floor_divide(Run&, const Value& a, const Value& b) {
  if (a.is_small_int() && b.is_small_int()) {
    return Value::integer(floor_divide(a.as_int(), b.as_int()));
  }
  if (!is_real(a) || !is_real(b)) fail_operands("//", a, b);
  return Value::floating(float_floor_divide(a.as_double(), b.as_double()));
}

Value modulo(Run& run, const Value& a, const Value& b) {
  if (a.is_string()) {
    return run.string_like(a, percent_format(run, a.text(), b, a.is_markup()));
  }
  if (a.is_small_int() && b.is_small_int()) return Value::integer(modulo(a.as_int(), b.as_int()));
  if (!is_real(a) || !is_real(b)) fail_operands("%", a, b);
  return Value::floating(float_modulo(a.as_double(), b.as_double()));
}

Value power(Run&, const Value& a, const Value& b) {
  if (a.is_small_int() && b.is_small_int() && b.as_int() >= 0) {
    return Value::integer(power(a.as_int(), b.as_int()));
  }
  if (!is_real(a) || !is_real(b)) fail_operands("** or pow()", a, b);
  return Value::floating(float_power(a.as_double(), b.as_double()));
}

Value negate(Run&, const Value& a) {
  if (a.is_small_int()) return Value::integer(subtract(0, a.as_int()));
  if (a.is(Kind::kFloat)) return Value::floating(-a.as_double());
  if (a.is_undefined()) fail_undefined(a);
  fail("bad operand type for unary -: '" + type_name(a) + "'");
}

Value plus(Run&, const Value& a) {
  if (a.is_small_int()) return Value::integer(a.as_int());
  if (a.is_number()) return a;
  if (a.is_undefined()) fail_undefined(a);
  fail("bad operand type for unary +: '" + type_name(a) + "'");
}

bool equal(Run& run, const Value& a, const Value& b) {
  const Nested nested(run);
  run.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.identity() != nullptr && a.identity() == b.identity()) return true;
  switch (a.kind()) {
    case Kind::kString:
      run.step(static_cast<int64_t>(a.text().size() / 64));
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(run, a.items(), b.items());
    case Kind::kDict:
      return equal_dicts(run, a.as_dict(), b.as_dict());
    case Kind::kView:
      return equal_views(run, a.as_view(), b.as_view());
    default:
      return same_key(a, b);
  }
}

bool less(Run& run, const Value& a, const Value& b) { return ordered(run, a, b, false); }

bool less_equal(Run& run, const Value& a, const Value& b) { return ordered(run, a, b, true); }

namespace {

const Value* found_in(Run& run, const Dict& dict, const Value& key) {
  if (!hashable(key)) fail("unhashable type: '" + type_name(key) + "'");
  run.step();
  return dict.find(key);
}

}  // namespace

bool contains(Run& run, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      fail("'in <string>' requires string as left operand, not " + type_name(item));
    }
    run.step(static_cast<int64_t>(container.text().size() / 64));
    return find_bytes(container.text(), item.text(), 0) != std::string::npos;
  }
  if (container.is(Kind::kDict)) return found_in(run, container.as_dict(), item) != nullptr;
  if (container.is(Kind::kView) && container.as_view().part != View::Part::kValues) {
    const View& view = container.as_view();
    const Dict& dict = view.dict.as_dict();
    if (view.part == View::Part::kKeys) return found_in(run, dict, item) != nullptr;
    if (!item.is(Kind::kTuple) || item.items().size() != 2) return false;
    const Value* value = found_in(run, dict, item.items()[0]);
    return value != nullptr && equal(run, *value, item.items()[1]);
  }
  if (container.is(Kind::kRange) && item.is_small_int()) {
    const Range& range = container.as_range();
    const int64_t size = range.size();
    if (size == 0) return false;
    const int64_t last = range.start + (size - 1) * range.step;
    const int64_t value = item.as_int();
    const bool inside = range.step > 0 ? value >= range.start && value <= last
                                       : value <= range.start && value >= last;
    return inside && (value - range.start) % range.step == 0;
  }
  if (container.is_sequence()) {
    for (const Value& other : container.items()) {
      if (equal(run, other, item)) return true;
    }
    return false;
  }
  if (!iterable(container)) {
    fail("argument of type '" + type_name(container) + "' is not iterable");
  }
  const auto source = iterate(run, container);
  while (const std::optional<Value> other = source->next(run)) {
    if (equal(run, *other, item)) return true;
  }
  return false;
}

}  // namespace spillway::model::jinja
