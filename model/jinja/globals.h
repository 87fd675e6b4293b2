// The functions every template can call: range, dict, namespace, cycler, joiner, raise_exception
// and strftime_now.
#pragma once

#include <cstdint>
#include <ctime>
#include <string_view>

#include "model/jinja/value.h"

namespace spillway::model::jinja {

// Undefined when there is no such function.
Value find_global(std::string_view name);

// A strftime_now for a context's entry of that name, which says a fixed local time instead of the
// clock's: tests, and answers that must repeat. Microseconds only show by %f.
Value fixed_clock(const std::tm& now, int microsecond = 0);

}  // namespace spillway::model::jinja
