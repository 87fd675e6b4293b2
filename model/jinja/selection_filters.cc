// map, select and their kin: generators that call another filter or test on each item.
#include "model/jinja/filters.h"
#include "model/jinja/iterate.h"
#include "model/jinja/printing.h"
#include "model/jinja/tests.h"

namespace spillway::model::jinja {
namespace {

// A generator's state: nothing is looked at before the first item is wanted, as in jinja2.
struct Source {
  Value input;
  Arguments arguments;
  std::shared_ptr<Iterator> items;  // null before the start
  bool empty = false;

  // False when there is nothing to go through.
  bool start(Run& run) {
    if (items == nullptr && !empty) {
      empty = !truthy(run, input);
      if (!empty) items = iterate(run, input);
    }
    return !empty;
  }
};

uint32_t depth_of(const Value& input, const Arguments& arguments) {
  uint32_t depth = input.depth();
  for (const Value& value : arguments.positional) depth = std::max(depth, value.depth());
  for (const auto& [name, value] : arguments.keyword) depth = std::max(depth, value.depth());
  return depth + 1;
}

std::string name_of(Run& run, const Value& value) {
  return value.is_string() ? value.text() : to_text(run, value);
}

Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

using Mapping = std::function<Value(Run&, const Value&)>;

Mapping make_mapping(Run& run, const Arguments& arguments) {
  if (arguments.positional.empty() && arguments.find("attribute") != nullptr) {
    Arguments rest = arguments;
    const Value attribute = *rest.take("attribute");
    const Value fallback = rest.take("default").value_or(Value::none());
    if (!rest.keyword.empty()) {
      fail("Unexpected keyword argument '" + rest.keyword[0].first + "'");
    }
    const AttributePath path(run, attribute);
    return [=](Run& run, const Value& item) { return path.get(run, item, fallback); };
  }
  if (arguments.positional.empty()) fail("map requires a filter argument");
  const std::string name = name_of(run, arguments.positional[0]);
  const Filter* const filter = find_filter(name);
  if (filter == nullptr) fail("No filter named '" + name + "'.");
  const Arguments rest = without_first(arguments, 1);
  return [=](Run& run, const Value& item) { return filter->call(run, item, rest); };
}

Value map(Run& run, const Value& input, const Arguments& arguments) {
  auto source = std::make_shared<Source>(Source{input, arguments, nullptr});
  auto mapping = std::make_shared<Mapping>();
  return generate(run, depth_of(input, arguments), [=](Run& run) -> std::optional<Value> {
    if (!source->start(run)) return std::nullopt;
    if (!*mapping) *mapping = make_mapping(run, source->arguments);
    const std::optional<Value> item = source->items->next(run);
    if (!item) return std::nullopt;
    return (*mapping)(run, *item);
  });
}

using Predicate = std::function<bool(Run&, const Value&)>;

Predicate make_predicate(Run& run, const Arguments& arguments, bool by_attribute) {
  AttributePath path;
  const size_t offset = by_attribute ? 1 : 0;
  if (by_attribute) {
    if (arguments.positional.empty()) fail("Missing parameter for attribute name");
    path = AttributePath(run, arguments.positional[0]);
  }
  if (arguments.positional.size() <= offset) {
    return [=](Run& run, const Value& item) { return truthy(run, path.get(run, item)); };
  }
  const std::string name = name_of(run, arguments.positional[offset]);
  const Test* const test = find_test(name);
  if (test == nullptr) fail("No test named '" + name + "'.");
  const Arguments rest = without_first(arguments, offset + 1);
  return [=](Run& run, const Value& item) { return test->call(run, path.get(run, item), rest); };
}

template <bool kWanted, bool kByAttribute>
Value choose(Run& run, const Value& input, const Arguments& arguments) {
  auto source = std::make_shared<Source>(Source{input, arguments, nullptr});
  auto predicate = std::make_shared<Predicate>();
  return generate(run, depth_of(input, arguments), [=](Run& run) -> std::optional<Value> {
    if (!source->start(run)) return std::nullopt;
    if (!*predicate) *predicate = make_predicate(run, source->arguments, kByAttribute);
    while (std::optional<Value> item = source->items->next(run)) {
      if ((*predicate)(run, *item) == kWanted) return item;
    }
    return std::nullopt;
  });
}

constexpr Filter kFilters[] = {
    {"map", map},
    {"reject", choose<false, false>},
    {"rejectattr", choose<false, true>},
    {"select", choose<true, false>},
    {"selectattr", choose<true, true>},
};

}  // namespace

std::span<const Filter> selection_filters() { return kFilters; }

}  // namespace spillway::model::jinja
