#include "model/jinja/filters.h"

#include <algorithm>

#include "model/jinja/attributes.h"
#include "model/jinja/numbers.h"
#include "model/jinja/printing.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

std::vector<Filter> sorted_filters() {
  std::vector<Filter> all;
  for (const auto group : {text_filters(), markup_filters(), number_filters(), sequence_filters(),
                           order_filters(), selection_filters()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  std::sort(all.begin(), all.end(),
            [](const Filter& a, const Filter& b) { return a.name < b.name; });
  return all;
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

const Filter* find_filter(std::string_view name) {
  static const std::vector<Filter> kAll = sorted_filters();
  const auto found = std::lower_bound(
      kAll.begin(), kAll.end(), name,
      [](const Filter& filter, std::string_view wanted) { return filter.name < wanted; });
  return found != kAll.end() && found->name == name ? &*found : nullptr;
}

AttributePath::AttributePath(Run& run, const Value& attribute) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.text();
  run.step(static_cast<int64_t>(rest.size() / 8));
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    parts_.push_back(all_digits(part) ? Value::integer(parse_int(part, 10).value_or(0))
                                      : run.string(std::string(part)));
    if (dot == std::string_view::npos) return;
    rest.remove_prefix(dot + 1);
  }
}

Value AttributePath::get(Run& run, const Value& item, const Value& fallback) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = get_item(run, value, part);
    if (value.is_undefined() && !fallback.is_none()) value = fallback;
  }
  return value;
}

Value ignore_case(Run& run, const Value& value) {
  if (!value.is_string()) return value;
  return run.string_like(value, to_lower(value.text()));
}

}  // namespace spillway::model::jinja
