// The str methods that cut a string into parts.
#pragma once

#include "model/jinja/run.h"

namespace spillway::model::jinja {

Value split_method(Run& run, const Value& self, const Arguments& arguments);
Value rsplit_method(Run& run, const Value& self, const Arguments& arguments);
Value splitlines_method(Run& run, const Value& self, const Arguments& arguments);
Value partition_method(Run& run, const Value& self, const Arguments& arguments);
Value rpartition_method(Run& run, const Value& self, const Arguments& arguments);

}  // namespace spillway::model::jinja
