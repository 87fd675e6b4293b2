// A client that sends exactly the bytes a test wants, over a plain blocking socket.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace spillway::server {

struct RawResponse {
  int status = 0;                             // 0: the connection ended before a whole header
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;                           // chunks put together
  bool whole = false;                         // the body ended as its framing says
};

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool send(std::string_view bytes);
  // More bytes, "" at the end of the connection or after 10 s.
  std::string receive();
  // The next response.
  RawResponse response();
  RawResponse get(const std::string& path, const std::string& fields = "");
  RawResponse post(const std::string& path, const std::string& body,
                   const std::string& fields = "");
  // Everything until the server closes.
  std::string rest();
  bool closed_by_server();  // waits for it, up to 10 s
  void close();
  int handle() const { return socket_; }

 private:
  bool fill();
  int socket_ = -1;
  std::string inbound_;
};

}  // namespace spillway::server
