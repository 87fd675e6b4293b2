// Python's str() and repr() of values, and truth: what {{ value }} and {% if value %} see.
#pragma once

#include <string>
#include <string_view>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

// Python prints objects with their addresses. Nobody can rely on one, but on how long it is.
inline constexpr std::string_view kSomeAddress = " at 0x7f0000000000";

bool truthy(Run& run, const Value& value);

// str(value). Charges what it makes.
std::string to_text(Run& run, const Value& value);
void append_text(Run& run, std::string& out, const Value& value);

// repr(value).
std::string to_repr(Run& run, const Value& value);
std::string quoted(std::string_view text);  // repr of a str

// Python's name of the type, for messages: "str", "int", "Undefined", ...
std::string type_name(const Value& value);

// &, <, >, ' and " as markupsafe writes them.
std::string html_escaped(std::string_view text);

// The value as HTML: markup as it is, anything else escaped.
std::string to_html(Run& run, const Value& value);

}  // namespace spillway::model::jinja
