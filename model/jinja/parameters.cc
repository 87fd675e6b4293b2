#include "model/jinja/parameters.h"

#include <algorithm>

#include "model/jinja/printing.h"
#include "model/jinja/text.h"

namespace spillway::model::jinja {

Parameters::Parameters(Run& run, std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : run_(run), function_(function), values_(names.size()), given_(names.size(), false) {
  const std::vector<Value>& positional = arguments.positional;
  if (positional.size() > names.size()) {
    fail(function_ + "() takes at most " + std::to_string(names.size()) + " arguments, " +
         std::to_string(positional.size()) + " given");
  }
  for (size_t i = 0; i < positional.size(); ++i) {
    values_[i] = positional[i];
    given_[i] = true;
  }
  for (const auto& [name, value] : arguments.keyword) {
    const auto found = std::find(names.begin(), names.end(), std::string_view(name));
    if (name.empty() || found == names.end()) {
      fail(function_ + "() got an unexpected keyword argument '" + name + "'");
    }
    const auto index = static_cast<size_t>(found - names.begin());
    if (given_[index]) fail(function_ + "() got multiple values for argument '" + name + "'");
    values_[index] = value;
    given_[index] = true;
  }
  for (size_t i = 0; i < required; ++i) {
    if (given_[i]) continue;
    const std::string_view name = names.begin()[i];
    fail(function_ + "() is missing its argument " +
         (name.empty() ? std::to_string(i + 1) : "'" + std::string(name) + "'"));
  }
}

bool Parameters::flag(size_t index, bool fallback) const {
  return has(index) ? truthy(run_, values_[index]) : fallback;
}

int64_t Parameters::integer(size_t index, int64_t fallback) const {
  if (!has(index)) return fallback;
  const Value& value = values_[index];
  if (value.is_small_int()) return value.as_int();
  if (value.is_undefined()) fail_undefined(value);
  fail(function_ + "(): '" + type_name(value) + "' object cannot be interpreted as an integer");
}

std::string Parameters::text(size_t index, std::string fallback) const {
  if (!has(index)) return fallback;
  const Value& value = values_[index];
  if (!value.is_string()) fail(function_ + "(): expected a str, got " + type_name(value));
  return value.text();
}

}  // namespace spillway::model::jinja
