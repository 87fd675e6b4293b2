// Client JSON to a value, strictly (case A9): refuses duplicate keys, numbers that overflow,
// nesting past 64, invalid UTF-8 and lone surrogates. Parsing keeps a flat stack whatever the text.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "server/api/api_error.h"

namespace spillway::server {

namespace json = boost::json;

struct JsonLimits {
  size_t depth = 64;
  size_t object_members = 1024;  // of one object: Boost.JSON's hash can be made to collide
  size_t keys = 1 << 18;         // of the document
  size_t values = 1 << 22;       // of the document
};

// The error says what is wrong and at which byte. Thread safe.
ApiResult<json::value> read_json(std::string_view text, const JsonLimits& limits = {});
// The same, and it must be an object, as every request body is.
ApiResult<json::object> read_json_object(std::string_view text);

}  // namespace spillway::server
