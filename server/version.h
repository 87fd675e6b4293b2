// Which Spillway this is.
#pragma once

#include <string>
#include <string_view>

namespace spillway::server {

std::string_view version();  // "0.1.0"
// {"version":"0.1.0","network":"io_uring"}
std::string version_body(std::string_view network);

}  // namespace spillway::server
