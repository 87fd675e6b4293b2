// The items of the Responses API (Open Responses, version 2026-04-24) as chat messages, which is
// what templates and the store of responses know.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include "server/api/api_error.h"

namespace spillway::server {

// `input`: a string, or a list of items. Messages with text parts, function calls and their outputs
// are taken; reasoning items are passed over; anything else is a 400 whose param is like
// "input[2].content". Roles and contents are checked by normalize_messages() (messages.h).
ApiResult<boost::json::array> read_response_input(const boost::json::value& input);

// Tools of the Responses API ({"type": "function", "name": ...}) in chat's form
// ({"type": "function", "function": {"name": ...}}).
ApiResult<boost::json::array> read_response_tools(const boost::json::array& tools);

}  // namespace spillway::server
