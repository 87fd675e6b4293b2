// Structured logging: one event name, then key=value fields. No prompt text ever goes in.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace spillway {

// Sets level and format of the process's logger (stderr). Any thread, at start-up.
// Accepts trace, debug, info, warn, error, off; false if `level` is none of them.
bool configure_log(const std::string& level);

}  // namespace spillway
