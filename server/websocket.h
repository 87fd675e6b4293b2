// A WebSocket over a session's stream, taken over after the HTTP upgrade request was read. The only
// file pair that knows Beast's WebSocket. Checks frames as RFC 6455 says (case H5): unmasked,
// oversized, reserved bits, bad UTF-8 and bad control frames end the connection with their code.
// Compression is off.
//
// Everything that happens sets its state and notifies `wake`; the owner's coroutine looks at all of
// it. Bounds: one message is held until it is taken, and nothing is read meanwhile; what is queued
// to be sent is counted in queued_bytes(), which the owner bounds; a peer that takes none of it for
// too long is closed. Network thread only.
// finish() must have been awaited before it dies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/task.h"
#include "server/connection.h"
#include "server/http_parser.h"
#include "server/response.h"
#include "server/wake.h"

namespace spillway::server {

struct WebSocketLimits {
  uint64_t message_bytes = 32 << 20;
  std::chrono::milliseconds handshake{20'000};
  std::chrono::milliseconds idle{300'000};  // half of it without traffic: a ping; all of it: closed
  std::chrono::milliseconds write{30'000};  // for the peer to take some bytes
};

class WebSocket {
 public:
  // `connection` has no read pending (Connection::reading()); both must outlive this.
  WebSocket(Connection& connection, Wake& wake, const WebSocketLimits& limits);
  ~WebSocket();
  WebSocket(const WebSocket&) = delete;
  WebSocket& operator=(const WebSocket&) = delete;

  static bool is_upgrade(const RequestHead& head);

  // Answers 101 with `fields` in it, or 400 what is no proper upgrade. False: the connection ends.
  Task<bool> accept(const RequestHead& head, const HeaderFields& fields);

  // The next message, if one has arrived. Taking it starts the next read.
  std::optional<std::string> take_message();
  // Once for each message: its first bytes are there, and more is to come.
  bool take_began() { return std::exchange(began_, false); }
  void send(std::string text);
  size_t queued_bytes() const { return queued_bytes_; }
  // Sends what is queued, then a close frame. Messages that still arrive are dropped.
  void close(uint16_t code, std::string reason);
  // The peer closed, left, broke the protocol or was silent for too long; or close() is done.
  bool ended() const { return ended_; }

  // Ends the stream if it is open and waits until no operation is left.
  Task<> finish();

 private:
  struct Impl;
  void read();
  void write();
  void on_end();

  Connection& connection_;
  Wake& wake_;
  std::unique_ptr<Impl> impl_;
  size_t queued_bytes_ = 0;
  bool ended_ = false;
  bool began_ = false;
};

}  // namespace spillway::server
