// What Beast's WebSocket reads from and writes to: a session's stream. Counts the operations in
// flight, because Beast's own (a pong, the ping of an idle connection) are started and ended by
// nobody else, and gives every write a deadline. Only for websocket.cc. Network thread.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/role.hpp>
#include <chrono>
#include <string>
#include <utility>

#include "server/stream.h"
#include "server/wake.h"

namespace spillway::server {

// Operations in flight on one stream. A write that takes longer than its limit closes the stream.
// Must not die before quiet() is true; `wake` is notified when it may have become so.
class StreamTraffic {
 public:
  StreamTraffic(Stream& stream, Wake& wake, std::chrono::milliseconds write_limit)
      : stream_(stream), wake_(wake), limit_(write_limit), timer_(stream.get_executor()) {}

  void begin(bool is_write) {
    ++in_flight_;
    if (!is_write) return;
    writing_ = true;
    write_start_ = std::chrono::steady_clock::now();
    if (!timer_pending_) start_timer();  // else it runs on, and looks again when it ends
  }
  void end(bool is_write) {
    --in_flight_;
    if (is_write) writing_ = false;
    wake_.notify();
  }

  bool quiet() const { return in_flight_ == 0 && !timer_pending_; }
  // What is in flight ends soon; nothing new should begin.
  void stop() {
    stopped_ = true;
    if (in_flight_ > 0) stream_.close();
    timer_.cancel();
  }

 private:
  void start_timer() {
    timer_pending_ = true;
    timer_.expires_at(write_start_ + limit_);
    timer_.async_wait([this](error_code) {
      timer_pending_ = false;
      if (writing_ && !stopped_) {
        if (std::chrono::steady_clock::now() >= write_start_ + limit_) {
          stream_.close();  // the peer takes nothing
        } else {
          start_timer();
        }
      }
      wake_.notify();
    });
  }

  Stream& stream_;
  Wake& wake_;
  const std::chrono::milliseconds limit_;
  asio::steady_timer timer_;
  std::chrono::steady_clock::time_point write_start_;
  int in_flight_ = 0;
  bool writing_ = false;
  bool timer_pending_ = false;
  bool stopped_ = false;
};

// Bytes that came behind the upgrade are read first.
class WebSocketLayer {
 public:
  using executor_type = Stream::executor_type;

  WebSocketLayer(Stream& stream, StreamTraffic& traffic, std::string received)
      : stream_(&stream), traffic_(&traffic), received_(std::move(received)) {}

  executor_type get_executor() { return stream_->get_executor(); }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, size_t)>(
        [this](auto handler, auto into) {
          if (received_.empty()) {
            traffic_->begin(false);
            stream_->async_read_some(into, counted(std::move(handler), false));
            return;
          }
          const size_t bytes = asio::buffer_copy(into, asio::buffer(received_));
          received_.erase(0, bytes);
          if (received_.empty()) received_ = std::string();
          asio::post(get_executor(),
                     boost::beast::bind_handler(std::move(handler), error_code(), bytes));
        },
        token, buffers);
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, size_t)>(
        [this](auto handler, auto from) {
          traffic_->begin(true);
          stream_->async_write_some(from, counted(std::move(handler), true));
        },
        token, buffers);
  }
  void close() { stream_->close(); }

  friend void beast_close_socket(WebSocketLayer& layer) { layer.close(); }
  // The connection's own end is the polite one: closing here, with bytes unread, would reset the
  // connection and might lose the close frame.
  [[maybe_unused]] friend void teardown(boost::beast::role_type, WebSocketLayer&,
                                        error_code& error) {
    error = {};
  }
  template <class Handler>
  friend void async_teardown(boost::beast::role_type, WebSocketLayer& layer, Handler&& handler) {
    asio::post(layer.get_executor(),
               boost::beast::bind_handler(std::forward<Handler>(handler), error_code()));
  }

 private:
  template <class Handler>
  auto counted(Handler handler, bool is_write) {
    auto executor = asio::get_associated_executor(handler, get_executor());
    return asio::bind_executor(std::move(executor),
                               [traffic = traffic_, is_write, handler = std::move(handler)](
                                   error_code error, size_t bytes) mutable {
                                 traffic->end(is_write);
                                 std::move(handler)(error, bytes);
                               });
  }

  Stream* stream_;
  StreamTraffic* traffic_;
  std::string received_;
};

}  // namespace spillway::server
