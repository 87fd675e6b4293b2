#include "server/response.h"

#include <cstdio>

namespace spillway::server {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 101:
      return "Switching Protocols";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 426:
      return "Upgrade Required";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

}  // namespace

Response error_response(const ApiError& error) {
  Response response{.status = error.status, .body = error_body(error)};
  if (error.status == 429 || error.status == 503) response.fields.emplace_back("retry-after", "1");
  // openai's client repeats 5xx by itself: what failed inside will fail again.
  if (error.status == 500) response.fields.emplace_back("x-should-retry", "false");
  return response;
}

std::string response_head(int status, std::string_view content_type, const HeaderFields& fields,
                          const HeadOptions& options) {
  std::string head = "HTTP/1.1 " + std::to_string(status) + " ";
  head.append(reason(status)).append("\r\n");
  if (!content_type.empty()) head.append("content-type: ").append(content_type).append("\r\n");
  for (const auto& [name, value] : fields) {
    head.append(name).append(": ").append(value).append("\r\n");
  }
  if (options.content_length) {
    head += "content-length: " + std::to_string(*options.content_length) + "\r\n";
  } else if (!options.http10) {
    head += "transfer-encoding: chunked\r\n";
  }
  if (!options.keep_alive) {
    head += "connection: close\r\n";
  } else if (options.http10) {
    head += "connection: keep-alive\r\n";
  }
  return head += "\r\n";
}

std::string frame_chunk(std::string_view bytes, bool http10, bool last) {
  if (http10) return std::string(bytes);
  std::string out;
  if (!bytes.empty()) {
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
    out.append(size).append(bytes).append("\r\n");
  }
  if (last) out += "0\r\n\r\n";
  return out;
}

}  // namespace spillway::server
