// The filters: value|name(arguments).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

struct Filter {
  std::string_view name;
  Value (*call)(Run& run, const Value& input, const Arguments& arguments);
};

// Null when there is none of that name.
const Filter* find_filter(std::string_view name);

// The files that hold them.
std::span<const Filter> text_filters();
std::span<const Filter> markup_filters();
std::span<const Filter> number_filters();
std::span<const Filter> sequence_filters();
std::span<const Filter> order_filters();
std::span<const Filter> selection_filters();

// What "a.b.0" leads to from an item, by brackets' rules.
class AttributePath {
 public:
  AttributePath() = default;                        // the item itself
  AttributePath(Run& run, const Value& attribute);  // a str, an int, or none: the item itself

  // Each undefined step becomes `fallback` unless that is none.
  Value get(Run& run, const Value& item, const Value& fallback = Value::none()) const;

 private:
  std::vector<Value> parts_;
};

// Strings in lower case, anything else as it is: what sorts and groups by default.
Value ignore_case(Run& run, const Value& value);

}  // namespace spillway::model::jinja
