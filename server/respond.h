// Writes one response to a connection: whole, or a stream of events.
#pragma once

#include <string>
#include <string_view>

#include "runtime/task.h"
#include "server/connection.h"
#include "server/response.h"

namespace spillway::server {

class Responder {
 public:
  Responder(Connection& connection, std::chrono::milliseconds write_limit, bool http10,
            bool keep_alive, bool head_only, HeaderFields fields)
      : connection_(connection),
        write_limit_(write_limit),
        http10_(http10),
        keep_alive_(keep_alive),
        head_only_(head_only),
        fields_(std::move(fields)) {}

  // All return false once the peer is gone.
  Task<bool> send(Response response);
  // The head goes out with the first bytes.
  Task<bool> send_events(std::string bytes, bool last);

  bool started() const { return started_; }
  int status() const { return status_; }
  // Whether another request may follow on this connection.
  bool keep_alive() const { return keep_alive_; }
  void end_connection() { keep_alive_ = false; }

 private:
  Connection& connection_;
  std::chrono::milliseconds write_limit_;
  bool http10_;
  bool keep_alive_;
  bool head_only_;
  HeaderFields fields_;  // of every response: x-request-id, CORS
  bool started_ = false;
  int status_ = 0;
};

}  // namespace spillway::server
