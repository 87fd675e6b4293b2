#include "server/api/job.h"

namespace spillway::server {

ApiResult<> check_finish(const scheduler::Output& output) {
  if (!output.finish) return {};
  switch (*output.finish) {
    case scheduler::FinishReason::kStop:
    case scheduler::FinishReason::kLength:
      return {};
    case scheduler::FinishReason::kCancelled:
      return ApiError{.status = 503,
                      .type = "service_unavailable_error",
                      .message = "the answer was cancelled: the server is shutting down",
                      .code = "cancelled"};
    case scheduler::FinishReason::kDeadline:
      return ApiError{.status = 504,
                      .type = "timeout_error",
                      .message = "the request's deadline passed before the answer was complete",
                      .code = "deadline_exceeded"};
    case scheduler::FinishReason::kError:
      break;
  }
  return ApiError{.status = 500,
                  .type = "server_error",
                  .message = output.error.empty() ? "the engine failed" : output.error};
}

void Reply::fail(const ApiError& error, std::string& wire) { append_error_event(wire, error); }

void append_event(std::string& wire, std::string_view text) {
  wire.append("data: ").append(text).append("\n\n");
}

void append_comment(std::string& wire, std::string_view text) {
  wire.append(": ").append(text).append("\n\n");
}

void append_error_event(std::string& wire, const ApiError& error) {
  append_event(wire, error_body(error));
}

}  // namespace spillway::server
