// One client's stream with what a session needs around it: a bounded inbound buffer filled by at
// most one pending read, writes with a deadline, and the end of the peer noticed at any time
// (case A4). The pending read stays armed while an answer is computed and sent; what a pipelining
// client sends meanwhile waits in the buffer, and when that is full, in the kernel.
//
// Owner: the session's coroutine. Thread: the network thread. finish() must have been awaited
// before it dies: until then operations of the stream use its buffers.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/task.h"
#include "server/stream.h"
#include "server/wake.h"

namespace spillway::server {

class Connection {
 public:
  using Duration = std::chrono::steady_clock::duration;
  static constexpr size_t kInboundMax = 64 << 10;

  explicit Connection(std::unique_ptr<Stream> stream);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // False when it fails or takes longer than `limit`.
  Task<bool> handshake(Duration limit);

  enum class Fill { kBytes, kEnd, kTimeout, kInterrupted };
  // Waits until there is more in received() than now, at most until `deadline`. kInterrupted when
  // interrupt() was called. REQUIRES: received() is shorter than kInboundMax.
  Task<Fill> fill(std::chrono::steady_clock::time_point deadline);
  std::string_view received() const { return inbound_; }
  void consume(size_t bytes) { inbound_.erase(0, bytes); }

  // False when the peer is gone or does not read for `limit`: the stream is then closed.
  Task<bool> write(std::string_view bytes, Duration limit);

  // Keeps a read pending, if there is room, so that peer_gone() becomes true when the peer leaves.
  void watch();
  bool peer_gone() const { return read_ended_ || closed_; }
  // Whatever is waiting here looks again; fill() returns.
  void interrupt();
  bool interrupted() const { return interrupted_; }
  // A fill() in progress returns kInterrupted, once; nothing else changes.
  void wake_idle();
  Wake& wake() { return wake_; }

  // Says goodbye (shutdown, then discards what still arrives, for a moment, so that the last answer
  // is not lost to a reset), closes, and waits until no operation is left.
  Task<> finish(bool politely);

  Stream& stream() { return *stream_; }
  // Right after fill() returned kBytes no read is pending: then another protocol may take over.
  bool reading() const { return read_pending_; }
  std::string take_received() {
    chunk_ = std::string();
    return std::exchange(inbound_, {});
  }

 private:
  void start_read();
  // One timer, started rarely: it runs on when the deadline moves back, and looks again then.
  void set_deadline(std::chrono::steady_clock::time_point deadline);
  void clear_deadline() { deadline_.reset(); }
  void start_timer();
  void close();

  std::unique_ptr<Stream> stream_;
  asio::steady_timer timer_;
  Wake wake_;
  std::string inbound_;
  std::string chunk_;  // belongs to the pending read
  bool read_pending_ = false;
  bool read_ended_ = false;
  bool write_pending_ = false;
  bool write_failed_ = false;
  size_t written_ = 0;
  int timers_pending_ = 0;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  bool timed_out_ = false;
  bool interrupted_ = false;
  bool idle_woken_ = false;
  bool closed_ = false;
};

}  // namespace spillway::server
