// The methods of lists, tuples, dicts, ranges and numbers. Those that would change a value are
// listed without a function: the sandbox refuses them.
#include <algorithm>
#include <cmath>

#include "model/jinja/attributes.h"
#include "model/jinja/iterate.h"
#include "model/jinja/operators.h"
#include "model/jinja/parameters.h"
#include "model/jinja/printing.h"

namespace spillway::model::jinja {
namespace {

Value dict_get(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "get", arguments, {"", ""}, 1);
  if (!hashable(p.at(0))) fail("unhashable type: '" + type_name(p.at(0)) + "'");
  const Value* found = self.as_dict().find(p.at(0));
  return found != nullptr ? *found : p.value(1, Value::none());
}

template <View::Part kPart>
Value dict_view(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "view", arguments, {});
  return Value::view({self, kPart});
}

Value same(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "copy", arguments, {});
  return self;
}

Value conjugate(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "conjugate", arguments, {});
  return self.is(Kind::kBool) ? Value::integer(self.as_int()) : self;
}

Value dict_fromkeys(Run& run, const Value&, const Arguments& arguments) {
  const Parameters p(run, "fromkeys", arguments, {"", ""}, 1);
  std::vector<Entry> entries;
  for (Value& key : to_items(run, p.at(0))) {
    entries.emplace_back(std::move(key), p.value(1, Value::none()));
  }
  return run.dict(std::move(entries));
}

Value sequence_count(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "count", arguments, {""}, 1);
  int64_t count = 0;
  for (const Value& item : to_items(run, self)) count += equal(run, item, p.at(0));
  return Value::integer(count);
}

Value sequence_index(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "index", arguments, {"", "", ""}, 1);
  const std::vector<Value> items = to_items(run, self);
  const auto size = static_cast<int64_t>(items.size());
  const auto bound = [&](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? std::max(index, -size) + size : index, 0, size);
  };
  for (int64_t i = bound(p.integer(1, 0)); i < bound(p.integer(2, size)); ++i) {
    if (equal(run, items[static_cast<size_t>(i)], p.at(0))) return Value::integer(i);
  }
  fail(to_repr(run, p.at(0)) + " is not in " + type_name(self));
}

Value bit_length(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "bit_length", arguments, {});
  if (!self.is_small_int()) fail("bit_length() of so large an integer is not supported");
  int64_t bits = 0;
  const int64_t value = self.as_int();
  uint64_t rest = value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  for (; rest > 0; rest >>= 1) ++bits;
  return Value::integer(bits);
}

Value is_integer(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "is_integer", arguments, {});
  const double value = self.as_double();
  return Value::boolean(std::isfinite(value) && value == std::floor(value));
}

constexpr Method kListMethods[] = {
    {"append", nullptr}, {"clear", nullptr},        {"copy", same},      {"count", sequence_count},
    {"extend", nullptr}, {"index", sequence_index}, {"insert", nullptr}, {"pop", nullptr},
    {"remove", nullptr}, {"reverse", nullptr},      {"sort", nullptr},
};

constexpr Method kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};

constexpr Method kDictMethods[] = {
    {"clear", nullptr},
    {"copy", same},
    {"fromkeys", dict_fromkeys},
    {"get", dict_get},
    {"items", dict_view<View::Part::kItems>},
    {"keys", dict_view<View::Part::kKeys>},
    {"pop", nullptr},
    {"popitem", nullptr},
    {"setdefault", nullptr},
    {"update", nullptr},
    {"values", dict_view<View::Part::kValues>},
};

constexpr Method kIntMethods[] = {{"bit_length", bit_length}, {"conjugate", conjugate}};
constexpr Method kFloatMethods[] = {{"is_integer", is_integer}, {"conjugate", conjugate}};

template <size_t N>
const Method* find(const Method (&methods)[N], std::string_view name) {
  for (const Method& method : methods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

}  // namespace

const Method* find_collection_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kList:
      return find(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return find(kTupleMethods, name);
    case Kind::kDict:
      return find(kDictMethods, name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
      return find(kIntMethods, name);
    case Kind::kFloat:
      return find(kFloatMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace spillway::model::jinja
