// The messages of a chat request: checked, and in the form that chat templates expect (case A5).
#pragma once

#include <boost/json/array.hpp>

#include "server/api/api_error.h"

namespace spillway::server {

// Checks roles and contents; lists of text parts become one string (joined by newlines), the role
// "developer" becomes "system", arguments of tool calls become objects. A missing content stays
// null if `null_content_ok`, else becomes "". The error's param is like "messages[2].content".
ApiResult<boost::json::array> normalize_messages(const boost::json::array& messages,
                                                 bool null_content_ok);

}  // namespace spillway::server
