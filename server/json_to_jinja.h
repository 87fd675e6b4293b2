// JSON as what a chat template computes with: integers stay integers, floats floats, and the order
// of members is kept.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string_view>

#include "model/jinja/value.h"
#include "runtime/result.h"

namespace spillway::server {

// REQUIRES: nesting below jinja::Value::kDepthMax, as read_json and json_to_jinja below see to.
model::jinja::Value to_jinja(const boost::json::value& value);
model::jinja::Value to_jinja(const boost::json::object& object);

// Parses text straight into a Value, as Python's json.loads would: of equal keys the last wins,
// integers of any size stay exact, floats are the nearest doubles. The error names the byte.
Result<model::jinja::Value> json_to_jinja(std::string_view text);

}  // namespace spillway::server
