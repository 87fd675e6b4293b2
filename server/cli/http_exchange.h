// A blocking HTTP/1.0 client for one request: no chunks, and an event stream simply ends with its
// connection. For a program that does nothing else meanwhile. Any one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace spillway::server {

struct Url {
  std::string host, port, path;  // path without "/" at its end
};

// "http://host:port/path"; scheme, port and path may be missing.
Result<Url> parse_url(std::string_view text);

// One request and its answer. When it dies, the server sees that nobody waits any more. Waits end
// soon after `interrupted`, which must outlive this, returns true.
class HttpExchange {
 public:
  explicit HttpExchange(const std::function<bool()>& interrupted) : interrupted_(interrupted) {}
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  Result<void> connect(const Url& url);
  Result<void> send(std::string_view bytes);
  // The status; what came behind the head is in received().
  Result<int> read_head();
  // More bytes at the end of received(). False at the end of the answer, or interrupted.
  Result<bool> read_more();
  std::string& received() { return received_; }

 private:
  // False: interrupted.
  Result<bool> wait(short events, int limit_ms);

  const std::function<bool()>& interrupted_;
  int socket_ = -1;
  std::string received_;
};

}  // namespace spillway::server
