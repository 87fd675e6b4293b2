// WebSocket frames: after a good upgrade, whatever bytes come must end in messages, a close or an
// error, and leave no operation behind (case H5).
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "runtime/check.h"
#include "server/connection.h"
#include "server/websocket.h"

namespace {

using namespace spillway::server;

// A peer that has sent everything already, and takes whatever is written.
class MemoryStream final : public Stream {
 public:
  MemoryStream(asio::any_io_executor executor, std::string bytes, size_t piece)
      : Stream(std::move(executor)), bytes_(std::move(bytes)), piece_(piece) {}

  void read_some(asio::mutable_buffer into, Handler handler) override {
    const size_t count = std::min({into.size(), bytes_.size() - at_, piece_});
    std::memcpy(into.data(), bytes_.data() + at_, count);
    at_ += count;
    const error_code error = count == 0 || closed_ ? asio::error::eof : error_code();
    finish(std::move(handler), error, count);
  }
  void write_some(asio::const_buffer from, Handler handler) override {
    finish(std::move(handler), closed_ ? asio::error::broken_pipe : error_code(), from.size());
  }
  void handshake(DoneHandler handler) override { finish(std::move(handler), error_code()); }
  void finish_writing(DoneHandler handler) override { finish(std::move(handler), error_code()); }
  void close() override { closed_ = true; }
  std::string peer() const override { return "memory"; }

 private:
  template <class H, class... Arguments>
  void finish(H handler, Arguments... arguments) {
    asio::post(get_executor(), [handler = std::move(handler), arguments...]() mutable {
      std::move(handler)(arguments...);
    });
  }

  std::string bytes_;
  size_t piece_;
  size_t at_ = 0;
  bool closed_ = false;
};

spillway::Task<> serve(std::unique_ptr<Stream> stream, bool& done) {
  Connection connection(std::move(stream));
  Wake wake;
  {
    WebSocket socket(connection, wake, {.message_bytes = 1 << 16});
    RequestHead head;
    head.method = "GET";
    head.target = "/v1/responses";
    head.fields = {{"host", "localhost"},
                   {"connection", "upgrade"},
                   {"upgrade", "websocket"},
                   {"sec-websocket-version", "13"},
                   {"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="}};
    const bool accepted = co_await socket.accept(head, HeaderFields());
    CHECK(accepted);
    size_t messages = 0;
    while (!socket.ended()) {
      while (auto message = socket.take_message()) {
        CHECK(message->size() <= 1 << 16);
        socket.send("{\"echo\":" + std::to_string(message->size()) + "}");
        if (++messages == 20) socket.close(1000, "enough");
      }
      if (!socket.ended()) co_await wake.wait();
    }
    co_await socket.finish();
  }
  co_await connection.finish(false);
  done = true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = data[0] % 16 == 0 ? 1 : 1u << (data[0] % 16);
  boost::asio::io_context context;
  bool done = false;
  auto stream = std::make_unique<MemoryStream>(
      context.get_executor(), std::string(reinterpret_cast<const char*>(data) + 1, size - 1),
      piece);
  boost::asio::co_spawn(context, serve(std::move(stream), done), boost::asio::detached);
  context.run();
  CHECK(done);
  return 0;
}
