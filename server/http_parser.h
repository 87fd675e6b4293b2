// Bytes to one HTTP/1 request, through Beast's parser, plus the refusals that Beast leaves to us
// (cases H1, H2). The only file that knows Beast's HTTP. No I/O.
//
//   size_t used = parser.put(bytes);   // as long as state() is kHead or kBody
//
// After the head has ended, put() stops once: look at head(), then go on with the body.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/api_error.h"

namespace spillway::server {

struct HttpLimits {
  uint32_t head_bytes = 32 << 10;
  uint64_t body_bytes = 32 << 20;
};

struct RequestHead {
  std::string method;
  std::string target;  // as sent, with the query
  bool http10 = false;
  bool keep_alive = true;
  bool expects_continue = false;
  bool has_body = false;
  std::vector<std::pair<std::string, std::string>> fields;  // in order, names in lower case

  // The first one's value, "" if there is none. `name` in lower case.
  std::string_view field(std::string_view name) const;
  size_t count(std::string_view name) const;
  std::string_view path() const;  // the target without the query
};

class HttpParser {
 public:
  enum class State { kHead, kBody, kDone, kFailed };

  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  // Takes what it can from the start of `bytes` and returns how much; the rest must be given again,
  // with more behind it.
  size_t put(std::string_view bytes);

  State state() const { return state_; }
  // Bytes that were not consumed hold the beginning of something.
  const RequestHead& head() const { return head_; }  // once past kHead
  std::string take_body();                           // once kDone
  const ApiError& error() const { return *error_; }  // once kFailed: answer it, then close

 private:
  struct Impl;
  void fail(int status, std::string message, std::string code = "");
  void fail_from(int beast_error);
  size_t put_head(std::string_view bytes);
  size_t put_body(std::string_view bytes);
  void read_fields();
  // What RFC 9112 forbids and Beast 1.81 lets pass.
  void check_head();
  void check_framing();

  HttpLimits limits_;
  State state_ = State::kHead;
  RequestHead head_;
  std::optional<ApiError> error_;
  uint64_t head_wire_bytes_ = 0;
  uint64_t body_wire_bytes_ = 0;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::server
