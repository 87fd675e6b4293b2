// Response heads and chunked framing as text: pure functions, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/api_error.h"

namespace spillway::server {

using HeaderFields = std::vector<std::pair<std::string, std::string>>;

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  HeaderFields fields = {};  // besides content-type, content-length and connection
};

Response error_response(const ApiError& error);

struct HeadOptions {
  bool http10 = false;
  bool keep_alive = true;
  // The body's length; nothing: chunked, or for HTTP/1.0 until the connection closes.
  std::optional<uint64_t> content_length = std::nullopt;
};
// The status line and header, with the empty line.
std::string response_head(int status, std::string_view content_type, const HeaderFields& fields,
                          const HeadOptions& options);
// Wraps `bytes` as one chunk unless `http10`. `last` adds the final chunk.
std::string frame_chunk(std::string_view bytes, bool http10, bool last);

}  // namespace spillway::server
