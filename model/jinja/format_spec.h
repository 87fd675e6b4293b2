// Python's format specification: what stands after the colon in "{:>8.2f}".
#pragma once

#include <string>
#include <string_view>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

// format(value, spec) of strings, bools and numbers; others take an empty spec only.
std::string format_value(Run& run, const Value& value, std::string_view spec);

}  // namespace spillway::model::jinja
