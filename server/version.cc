#include "server/version.h"

namespace spillway::server {

std::string_view version() { return SPILLWAY_VERSION; }

std::string version_body(std::string_view network) {
  std::string body = "{\"version\":\"";
  body.append(version()).append("\",\"network\":\"").append(network).append("\"}");
  return body;
}

}  // namespace spillway::server
