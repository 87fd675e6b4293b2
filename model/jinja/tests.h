// The tests: value is name(arguments).
#pragma once

#include <string_view>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

struct Test {
  std::string_view name;
  bool (*call)(Run& run, const Value& value, const Arguments& arguments);
};

// Null when there is none of that name.
const Test* find_test(std::string_view name);

}  // namespace spillway::model::jinja
