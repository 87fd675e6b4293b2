// Python's operators on values. Each counts its work in the run and throws where Python would.
#pragma once

#include <string>
#include <string_view>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

Value add(Run& run, const Value& a, const Value& b);
Value subtract(Run& run, const Value& a, const Value& b);
Value multiply(Run& run, const Value& a, const Value& b);
Value divide(Run& run, const Value& a, const Value& b);
Value floor_divide(Run& run, const Value& a, const Value& b);
Value modulo(Run& run, const Value& a, const Value& b);  // also "%s" % value
Value power(Run& run, const Value& a, const Value& b);
Value negate(Run& run, const Value& a);
Value plus(Run& run, const Value& a);

bool equal(Run& run, const Value& a, const Value& b);
bool less(Run& run, const Value& a, const Value& b);                 // a < b
bool less_equal(Run& run, const Value& a, const Value& b);           // a <= b
bool contains(Run& run, const Value& container, const Value& item);  // item in container

// value[index] and value[start:stop:step] of sequences; absent bounds are none.
Value slice(Run& run, const Value& value, const Value& start, const Value& stop, const Value& step);

// "%d items" % arguments (percent_format.cc).
std::string percent_format(Run& run, std::string_view format, const Value& arguments, bool escape);

}  // namespace spillway::model::jinja
