// The chat page at "/" as responses.
#pragma once

#include <string_view>

#include "server/response.h"

namespace spillway::server {

bool is_page(std::string_view path);
Response page_response(std::string_view path);  // REQUIRES: is_page(path)

}  // namespace spillway::server
