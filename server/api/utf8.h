// UTF-8 as the wire needs it.
#pragma once

#include <cstddef>
#include <string_view>

namespace spillway::server {

// Bytes of the well-formed code point that `text` starts with (1 to 4), 0 if there is none:
// empty, truncated, overlong, a surrogate or past U+10FFFF.
size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);
// Code points; a byte that starts none counts as one.
size_t utf8_count(std::string_view text);

}  // namespace spillway::server
