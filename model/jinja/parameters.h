// What a built-in filter, test, method or function was called with, bound to its parameters by
// Python's rules.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

class Parameters {
 public:
  // `names` in order, the first `required` of them without default; an empty name takes a position
  // only. Throws on too many, unknown, doubled or missing arguments.
  Parameters(Run& run, std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t required = 0);

  bool has(size_t index) const { return given_[index]; }
  const Value& at(size_t index) const { return values_[index]; }

  // The value or a default; each throws when the type is wrong.
  Value value(size_t index, Value fallback) const {
    return has(index) ? values_[index] : std::move(fallback);
  }
  bool flag(size_t index, bool fallback) const;
  int64_t integer(size_t index, int64_t fallback) const;
  std::string text(size_t index, std::string fallback) const;

 private:
  Run& run_;
  std::string function_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

}  // namespace spillway::model::jinja
