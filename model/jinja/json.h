// The tojson filter as Hugging Face sets it up: Python's json.dumps, with nothing sorted and
// nothing escaped for HTML unless asked.
#pragma once

#include <optional>
#include <string>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // per level; absent: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Throws for what JSON cannot say: undefined, ranges, generators, namespaces.
std::string to_json(Run& run, const Value& value, const JsonStyle& style);

}  // namespace spillway::model::jinja
