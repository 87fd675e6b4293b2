#include "server/cli/http_exchange.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace spillway::server {
namespace {

constexpr size_t kHeadMax = 64 << 10;
constexpr int kConnectMs = 10'000;
constexpr int kTickMs = 50;  // how soon an interrupt is seen

Error broken(const char* what) {
  return Error{ErrorCode::kIo, std::string(what) + ": " + std::strerror(errno)};
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  if (text.starts_with("https://")) {
    return invalid_argument("chat --url takes http:// only, not https://");
  }
  if (text.starts_with("http://")) text.remove_prefix(7);
  Url url;
  const size_t slash = std::min(text.find('/'), text.size());
  url.path = text.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  if (url.path.empty()) url.path = "/v1";
  std::string_view place = text.substr(0, slash);
  const size_t colon = place.rfind(':');
  const bool has_port = colon != place.npos && place.find(']', colon) == place.npos;
  url.port = has_port ? std::string(place.substr(colon + 1)) : "80";
  if (has_port) place = place.substr(0, colon);
  if (place.starts_with('[') && place.ends_with(']')) place = place.substr(1, place.size() - 2);
  url.host = place;
  if (url.host.empty() || url.port.empty()) {
    return invalid_argument("'" + std::string(text) +
                            "' is no address of a server: write http://127.0.0.1:8000");
  }
  return url;
}

HttpExchange::~HttpExchange() {
  if (socket_ >= 0) close(socket_);
}

Result<bool> HttpExchange::wait(short events, int limit_ms) {
  for (int waited = 0; limit_ms < 0 || waited < limit_ms; waited += kTickMs) {
    if (interrupted_()) return false;
    pollfd one{.fd = socket_, .events = events, .revents = 0};
    const int ready = poll(&one, 1, kTickMs);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return broken("the connection failed");
  }
  return Error{ErrorCode::kIo, "the server does not answer"};
}

Result<void> HttpExchange::connect(const Url& url) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found); code != 0) {
    return Error{ErrorCode::kIo, "cannot find " + url.host + ": " + gai_strerror(code)};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (socket_ >= 0) close(socket_);
    socket_ = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_ < 0) return broken("cannot open a socket");
    if (::connect(socket_, at->ai_addr, at->ai_addrlen) == 0) return {};
    error = errno;
    if (error != EINPROGRESS) continue;
    auto ready = wait(POLLOUT, kConnectMs);
    if (!ready) return ready.error();
    socklen_t size = sizeof error;
    getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return {};
  }
  return Error{ErrorCode::kIo, "cannot reach a server at " + url.host + ":" + url.port + ": " +
                                   std::strerror(error)};
}

Result<void> HttpExchange::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN || errno == EINTR) {
      auto ready = wait(POLLOUT, kConnectMs);
      if (!ready) return ready.error();
      if (!*ready) return {};
    } else {
      return broken("the server closed the connection");
    }
  }
  return {};
}

Result<bool> HttpExchange::read_more() {
  for (;;) {
    auto ready = wait(POLLIN, -1);
    if (!ready) return ready.error();
    if (!*ready) return false;
    char bytes[16 << 10];
    const ssize_t count = recv(socket_, bytes, sizeof bytes, 0);
    if (count == 0) return false;
    if (count > 0) {
      received_.append(bytes, static_cast<size_t>(count));
      return true;
    }
    if (errno != EAGAIN && errno != EINTR) return broken("the connection was lost");
  }
}

Result<int> HttpExchange::read_head() {
  const Error wrong{ErrorCode::kIo, "what answers there is no HTTP server"};
  size_t end = 0;
  while ((end = received_.find("\r\n\r\n")) == received_.npos) {
    if (received_.size() > kHeadMax) return wrong;
    auto more = read_more();
    if (!more) return more.error();
    if (!*more) return interrupted_() ? Result<int>(0) : Result<int>(wrong);
  }
  if (!received_.starts_with("HTTP/1.") || end < 12) return wrong;
  const int status = std::atoi(received_.c_str() + 9);
  received_.erase(0, end + 4);
  return status;
}

}  // namespace spillway::server
