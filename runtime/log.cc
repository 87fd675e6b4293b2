#include "runtime/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace spillway {

bool configure_log(const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") return false;
  if (spdlog::get("spillway") == nullptr) {
    spdlog::set_default_logger(spdlog::stderr_color_mt("spillway"));
  }
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
  spdlog::set_level(parsed);
  return true;
}

}  // namespace spillway
