// A WebSocket over a stream that the test controls, and frames over a real socket.
#include "server/websocket.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace spillway::server {
namespace {

using std::chrono::milliseconds;

// Takes writes until hold() was called, then keeps them until it is closed, and then for 20 ms
// more than a read, as the kernel may. Its peer says nothing.
class HeldStream final : public Stream {
 public:
  HeldStream(asio::io_context& context, bool& dead)
      : Stream(context.get_executor()), timer_(context), dead_(dead) {}
  ~HeldStream() override {
    dead_ = true;
    EXPECT_FALSE(read_);
    EXPECT_FALSE(write_);
  }

  void hold() { held_ = true; }
  bool write_waits() const { return static_cast<bool>(write_); }
  bool closed() const { return closed_; }

  void read_some(asio::mutable_buffer, Handler handler) override {
    read_.emplace(std::move(handler));
    if (closed_) end();
  }
  void write_some(asio::const_buffer from, Handler handler) override {
    if (held_ || closed_) {
      write_.emplace(std::move(handler));
      if (closed_) end();
      return;
    }
    asio::post(get_executor(), [handler = std::move(handler), bytes = from.size()]() mutable {
      std::move(handler)(error_code(), bytes);
    });
  }
  void handshake(DoneHandler) override { FAIL(); }
  void finish_writing(DoneHandler) override { FAIL(); }
  void close() override {
    if (std::exchange(closed_, true)) return;
    end();
  }
  std::string peer() const override { return "test"; }

 private:
  void end() {
    asio::post(get_executor(), [this] { fail(read_); });
    timer_.expires_after(milliseconds(20));
    timer_.async_wait([this](error_code) { fail(write_); });
  }
  static void fail(std::optional<Handler>& waiting) {
    if (!waiting) return;
    Handler handler = std::move(*waiting);
    waiting.reset();
    std::move(handler)(asio::error::operation_aborted, 0);
  }

  asio::steady_timer timer_;
  std::optional<Handler> read_, write_;
  bool held_ = false;
  bool closed_ = false;
  bool& dead_;
};

RequestHead upgrade() {
  RequestHead head;
  head.method = "GET";
  head.target = "/v1/responses";
  head.fields = {{"host", "localhost"},
                 {"connection", "upgrade"},
                 {"upgrade", "websocket"},
                 {"sec-websocket-version", "13"},
                 {"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="}};
  return head;
}

// Runs `body` to its end; the connection and its stream die with it.
template <class Body>
void run_over_held_stream(Body body) {
  asio::io_context context;
  bool dead = false;
  auto stream = std::make_unique<HeldStream>(context, dead);
  HeldStream& held = *stream;
  asio::co_spawn(context, body(std::move(stream), held), asio::detached);
  context.run_for(std::chrono::seconds(20));
  EXPECT_TRUE(dead) << "the session did not end";
}

// What Beast starts by itself must not outlive the WebSocket: over TLS it would use freed memory.
TEST(WebSocket, finish_waits_for_the_ping_of_an_idle_connection) {
  run_over_held_stream([](std::unique_ptr<Stream> stream, HeldStream& held) -> spillway::Task<> {
    Connection connection(std::move(stream));
    {
      Wake wake;
      WebSocket socket(connection, wake, {.idle = milliseconds(100)});
      EXPECT_TRUE(co_await socket.accept(upgrade(), HeaderFields()));
      held.hold();
      asio::steady_timer timer(connection.stream().get_executor());
      for (int i = 0; i < 400 && !held.write_waits(); ++i) {
        timer.expires_after(milliseconds(5));
        co_await timer.async_wait(asio::use_awaitable);
      }
      EXPECT_TRUE(held.write_waits());  // the ping
      co_await socket.finish();
      EXPECT_FALSE(held.write_waits());
    }
    co_await connection.finish(false);
  });
}

// case H3
TEST(WebSocket, a_peer_that_takes_nothing_is_closed_at_the_write_deadline) {
  run_over_held_stream([](std::unique_ptr<Stream> stream, HeldStream& held) -> spillway::Task<> {
    Connection connection(std::move(stream));
    {
      Wake wake;
      WebSocket socket(connection, wake, {.write = milliseconds(150)});
      EXPECT_TRUE(co_await socket.accept(upgrade(), HeaderFields()));
      held.hold();
      const auto start = std::chrono::steady_clock::now();
      socket.send("hello");
      while (!socket.ended()) co_await wake.wait();
      EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(150));
      EXPECT_TRUE(held.closed());
      co_await socket.finish();
    }
    co_await connection.finish(false);
  });
}

}  // namespace
}  // namespace spillway::server
