// Escapes in a template's string literals.
#pragma once

#include <string>
#include <string_view>

namespace spillway::model::jinja {

// The text between the quotes with Python's escapes resolved; unknown ones stay as written.
// Throws a Failure for a cut-off escape, a surrogate, and \N{name}.
std::string unescape_literal(std::string_view text);

}  // namespace spillway::model::jinja
