// GET /debug/cache: what the cache holds, without anyone's text (case I4).
#pragma once

#include <string>

#include "server/api/served_model.h"

namespace spillway::server {

std::string debug_cache_body(const ServedModel& model);

}  // namespace spillway::server
