#include <boost/asio/ssl/stream.hpp>

#include "server/stream.h"

namespace spillway::server {
namespace {

class TlsStream final : public Stream {
 public:
  TlsStream(asio::ip::tcp::socket socket, asio::ssl::context& context)
      : Stream(socket.get_executor()), tls_(std::move(socket), context) {
    error_code ignored;
    const auto endpoint = tls_.next_layer().remote_endpoint(ignored);
    if (!ignored) peer_ = endpoint.address().to_string();
    tls_.next_layer().set_option(asio::ip::tcp::no_delay(true), ignored);
  }

  void read_some(asio::mutable_buffer into, Handler handler) override {
    tls_.async_read_some(into, std::move(handler));
  }
  void write_some(asio::const_buffer from, Handler handler) override {
    tls_.async_write_some(from, std::move(handler));
  }
  void handshake(DoneHandler handler) override {
    tls_.async_handshake(asio::ssl::stream_base::server, std::move(handler));
  }
  void finish_writing(DoneHandler handler) override { tls_.async_shutdown(std::move(handler)); }
  void close() override {
    error_code ignored;
    tls_.next_layer().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    tls_.next_layer().close(ignored);
  }
  std::string peer() const override { return peer_; }

 private:
  asio::ssl::stream<asio::ip::tcp::socket> tls_;
  std::string peer_;
};

}  // namespace

std::unique_ptr<Stream> make_tls_stream(asio::ip::tcp::socket socket, asio::ssl::context& context) {
  return std::make_unique<TlsStream>(std::move(socket), context);
}

}  // namespace spillway::server
