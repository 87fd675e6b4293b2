// Tokens to a template's tree.
#pragma once

#include <string_view>

#include "model/jinja/ast.h"

namespace spillway::model::jinja {

// Expressions and blocks nested deeper than this are refused: they are walked recursively.
constexpr int kParseDepthMax = 200;

// Parses without resolving names. Throws a Failure that names the line.
Template parse_template(std::string_view source);

}  // namespace spillway::model::jinja
