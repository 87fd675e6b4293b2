#include "tests/server/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <utility>

#include "runtime/check.h"

namespace spillway::server {

RawClient::RawClient(uint16_t port, int receive_buffer) {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(socket_ >= 0);
  if (receive_buffer > 0) {
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

RawClient::~RawClient() { close(); }

void RawClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

std::string RawClient::receive() {
  pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, 10'000) <= 0) return {};
  char bytes[16384];
  const ssize_t count = recv(socket_, bytes, sizeof bytes, 0);
  return count > 0 ? std::string(bytes, static_cast<size_t>(count)) : std::string();
}

bool RawClient::fill() {
  const std::string more = receive();
  inbound_ += more;
  return !more.empty();
}

RawResponse RawClient::response() {
  RawResponse out;
  size_t end = 0;
  while ((end = inbound_.find("\r\n\r\n")) == std::string::npos) {
    if (!fill()) return out;
  }
  const std::string head = inbound_.substr(0, end + 2);
  inbound_.erase(0, end + 4);
  out.status = std::atoi(head.c_str() + 9);
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t line_end = head.find("\r\n", at);
    const size_t colon = head.find(": ", at);
    std::string name = head.substr(at, colon - at);
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    out.fields[name] = head.substr(colon + 2, line_end - colon - 2);
    at = line_end + 2;
  }
  if (out.status == 100 || out.status == 204) {
    out.whole = true;
    return out;
  }
  if (out.fields.contains("content-length")) {
    const size_t length = std::strtoul(out.fields["content-length"].c_str(), nullptr, 10);
    while (inbound_.size() < length) {
      if (!fill()) return out;
    }
    out.body = inbound_.substr(0, length);
    inbound_.erase(0, length);
    out.whole = true;
    return out;
  }
  if (!out.fields.contains("transfer-encoding")) {
    out.body = rest();
    out.whole = true;
    return out;
  }
  for (;;) {
    size_t line = 0;
    while ((line = inbound_.find("\r\n")) == std::string::npos) {
      if (!fill()) return out;
    }
    const size_t size = std::strtoul(inbound_.c_str(), nullptr, 16);
    while (inbound_.size() < line + 2 + size + 2) {
      if (!fill()) return out;
    }
    out.body += inbound_.substr(line + 2, size);
    inbound_.erase(0, line + 2 + size + 2);
    if (size == 0) {
      out.whole = true;
      return out;
    }
  }
}

RawResponse RawClient::get(const std::string& path, const std::string& fields) {
  send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n");
  return response();
}

RawResponse RawClient::post(const std::string& path, const std::string& body,
                            const std::string& fields) {
  send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
       "Content-Length: " + std::to_string(body.size()) + "\r\n" + fields + "\r\n" + body);
  return response();
}

std::string RawClient::rest() {
  while (fill()) {
  }
  return std::exchange(inbound_, {});
}

bool RawClient::closed_by_server() {
  pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, 10'000) <= 0) return false;
  char byte = 0;
  return recv(socket_, &byte, 1, 0) <= 0;
}

}  // namespace spillway::server
