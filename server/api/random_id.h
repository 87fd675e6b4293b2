// Unpredictable ids for requests and answers. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway::server {

uint64_t random_u64();
// prefix + 32 hex digits, as in "chatcmpl-0f3a...".
std::string random_id(std::string_view prefix);

}  // namespace spillway::server
