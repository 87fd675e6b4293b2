#include "model/jinja/tests.h"

#include <iterator>

#include "model/jinja/filters.h"
#include "model/jinja/iterate.h"
#include "model/jinja/loop.h"
#include "model/jinja/operators.h"
#include "model/jinja/parameters.h"
#include "model/jinja/printing.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

// A test without arguments.
template <bool (*kTest)(const Value&)>
bool plain(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p(run, "test", arguments, {});
  return kTest(value);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is(Kind::kInt) || v.is(Kind::kBigInt); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_escaped(const Value& v) { return v.is_markup(); }

bool is_sequence(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange) ||
         v.is_undefined();
}

bool is_iterable(const Value& v) { return iterable(v) || v.object_as<Loop>() != nullptr; }

bool is_callable(const Value& v) {
  return v.is_undefined() || (v.is(Kind::kObject) && v.as_object().callable());
}

bool remainder_is(Run& run, const Value& value, const Value& divisor, int64_t wanted) {
  return equal(run, modulo(run, value, divisor), Value::integer(wanted));
}

bool is_odd(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p(run, "odd", arguments, {});
  return remainder_is(run, value, Value::integer(2), 1);
}

bool is_even(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p(run, "even", arguments, {});
  return remainder_is(run, value, Value::integer(2), 0);
}

bool is_divisible(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p(run, "divisibleby", arguments, {"num"}, 1);
  return remainder_is(run, value, p.at(0), 0);
}

template <bool (*kWanted)(char32_t), bool (*kOther)(char32_t)>
bool is_cased(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p(run, "test", arguments, {});
  const std::string text = to_text(run, value);
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    if (kOther(point) || is_title(point)) return false;
    found = found || kWanted(point);
  }
  return found;
}

bool is_same(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p(run, "sameas", arguments, {"other"}, 1);
  const Value& other = p.at(0);
  if (value.kind() != other.kind()) return false;
  if (value.identity() != nullptr) return value.identity() == other.identity();
  return equal(run, value, other);
}

bool is_in(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p(run, "in", arguments, {"seq"}, 1);
  return contains(run, p.at(0), value);
}

void require_hashable(const Value& value) {
  if (!hashable(value)) fail("unhashable type: '" + type_name(value) + "'");
}

bool is_filter(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p(run, "filter", arguments, {});
  require_hashable(value);
  return value.is_string() && find_filter(value.text()) != nullptr;
}

bool is_test(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p(run, "test", arguments, {});
  require_hashable(value);
  return value.is_string() && find_test(value.text()) != nullptr;
}

// A comparison with one argument.
template <bool (*kCompare)(Run&, const Value&, const Value&)>
bool compared(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters p(run, "comparison", arguments, {""}, 1);
  return kCompare(run, value, p.at(0));
}

bool not_equal(Run& run, const Value& a, const Value& b) { return !equal(run, a, b); }
bool greater(Run& run, const Value& a, const Value& b) { return less(run, b, a); }
bool greater_equal(Run& run, const Value& a, const Value& b) { return less_equal(run, b, a); }

constexpr Test kTests[] = {
    {"!=", compared<not_equal>},
    {"<", compared<less>},
    {"<=", compared<less_equal>},
    {"==", compared<equal>},
    {">", compared<greater>},
    {">=", compared<greater_equal>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", is_divisible},
    {"eq", compared<equal>},
    {"equalto", compared<equal>},
    {"escaped", plain<is_escaped>},
    {"even", is_even},
    {"false", plain<is_false>},
    {"filter", is_filter},
    {"float", plain<is_float>},
    {"ge", compared<greater_equal>},
    {"greaterthan", compared<greater>},
    {"gt", compared<greater>},
    {"in", is_in},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable>},
    {"le", compared<less_equal>},
    {"lessthan", compared<less>},
    {"lower", is_cased<is_lower, is_upper>},
    {"lt", compared<less>},
    {"mapping", plain<is_mapping>},
    {"ne", compared<not_equal>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", is_odd},
    {"sameas", is_same},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"test", is_test},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", is_cased<is_upper, is_lower>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  for (const Test& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace spillway::model::jinja
