#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include "server/stream.h"

namespace spillway::server {
namespace {

class PlainStream final : public Stream {
 public:
  explicit PlainStream(asio::ip::tcp::socket socket)
      : Stream(socket.get_executor()), socket_(std::move(socket)) {
    error_code ignored;
    const auto endpoint = socket_.remote_endpoint(ignored);
    if (!ignored) peer_ = endpoint.address().to_string();
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  }

  void read_some(asio::mutable_buffer into, Handler handler) override {
    socket_.async_read_some(into, std::move(handler));
  }
  void write_some(asio::const_buffer from, Handler handler) override {
    socket_.async_write_some(from, std::move(handler));
  }
  void handshake(DoneHandler handler) override { complete(std::move(handler)); }
  void finish_writing(DoneHandler handler) override {
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    complete(std::move(handler));
  }
  void close() override {
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }
  std::string peer() const override { return peer_; }

 private:
  void complete(DoneHandler handler) {
    asio::post(get_executor(),
               [handler = std::move(handler)]() mutable { std::move(handler)(error_code()); });
  }

  asio::ip::tcp::socket socket_;
  std::string peer_;
};

}  // namespace

std::unique_ptr<Stream> make_plain_stream(asio::ip::tcp::socket socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

}  // namespace spillway::server
