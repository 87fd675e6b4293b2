#include "server/api/api_error.h"

#include <stdexcept>

#include "server/api/json_text.h"

namespace spillway::server {

void throw_exception_from_error(const ApiError& error, const boost::source_location&) {
  throw std::runtime_error(error.message);
}

ApiError bad_field(std::string param, std::string message, std::string code) {
  return {.message = std::move(message), .param = std::move(param), .code = std::move(code)};
}

ApiError from_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return {.message = error.message};
    case ErrorCode::kNotFound:
      return {.status = 404, .type = "not_found_error", .message = error.message};
    case ErrorCode::kUnsupported:
      return {.message = error.message, .code = "unsupported"};
    case ErrorCode::kUnavailable:
      return {.status = 503, .type = "service_unavailable_error", .message = error.message};
    case ErrorCode::kResourceExhausted:
      return {.status = 429,
              .type = "rate_limit_error",
              .message = error.message,
              .code = "server_overloaded"};
    case ErrorCode::kDeadlineExceeded:
      return {.status = 504, .type = "timeout_error", .message = error.message};
    case ErrorCode::kCorrupt:
    case ErrorCode::kIo:
    case ErrorCode::kCancelled:
      break;
  }
  return {.status = 500, .type = "server_error", .message = error.message};
}

std::string error_body(const ApiError& error) {
  std::string out = "{\"error\":{\"message\":";
  append_quoted(out, error.message);
  out += ",\"type\":";
  append_quoted(out, error.type);
  out += ",\"param\":";
  if (error.param.empty()) {
    out += "null";
  } else {
    append_quoted(out, error.param);
  }
  out += ",\"code\":";
  if (error.code.empty()) {
    out += "null";
  } else {
    append_quoted(out, error.code);
  }
  out += "}}";
  return out;
}

}  // namespace spillway::server
