// value.name and value[key], by the sandbox's rules: Python attributes first for a dot, items first
// for brackets, and nothing that reaches out or changes a value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

// Undefined when there is no such thing; throws when `object` is itself undefined.
Value get_attribute(Run& run, const Value& object, const std::string& name);
Value get_item(Run& run, const Value& object, const Value& key);

// Python's getattr alone: methods and properties, without the fallback to items.
std::optional<Value> python_attribute(Run& run, const Value& object, std::string_view name);

// One built-in method of a type.
struct Method {
  std::string_view name;
  Value (*call)(Run& run, const Value& self, const Arguments& arguments);  // null: the sandbox's no
};

// Null when the type has no such method.
const Method* find_method(const Value& object, std::string_view name);

// Each type's methods.
const Method* find_string_method(std::string_view name);
const Method* find_collection_method(Kind kind, std::string_view name);

// str.format (str_format.cc).
Value format_method(Run& run, const Value& self, const Arguments& arguments);

// Undefined whose use says that the sandbox forbids it.
Value refused_attribute(const Value& object, std::string_view name);

}  // namespace spillway::model::jinja
