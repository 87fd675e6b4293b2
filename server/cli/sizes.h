// Byte sizes as people write them: 512M, 4G, 1.5GiB; and back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace spillway::server {

// K, M, G, T are powers of 1024, also with "B" or "iB" behind; no unit means bytes.
Result<uint64_t> parse_bytes(std::string_view text);
Result<double> parse_share(std::string_view text);  // "25%" or "0.25", from 0 to 1
std::string bytes_text(uint64_t bytes);             // "1.5 GiB"
std::string grouped_digits(uint64_t number);        // "90,112"

}  // namespace spillway::server
