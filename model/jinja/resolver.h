// Turns the names of a parsed template into slots, and its filters and tests into functions.
#pragma once

#include "model/jinja/ast.h"

namespace spillway::model::jinja {

// Throws a Failure with its line for what jinja2 refuses when it compiles: unknown filters and
// tests outside conditions, assignments to `loop` in a loop, break and continue outside one.
void resolve(Template& parsed);

}  // namespace spillway::model::jinja
