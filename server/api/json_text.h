// JSON values to text. Boost.JSON's own serializer writes 1.0 as 1E0; this one writes the shortest
// decimal that reads back the same, and never a non-finite number (null instead).
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

namespace spillway::server {

namespace json = boost::json;

void append_json(std::string& out, const json::value& value);
std::string to_json(const json::value& value);
// `text` must be UTF-8; what is not becomes U+FFFD.
void append_quoted(std::string& out, std::string_view text);

}  // namespace spillway::server
