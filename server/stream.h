// A byte stream to a client, plain TCP or TLS behind one concrete type: what HTTP and WebSocket
// code is written against, once. Models Asio's AsyncReadStream and AsyncWriteStream.
//
// Thread: the network thread. At most one read and one write may be in flight. Buffers must stay
// until the operation completes; close() makes those in flight complete soon, with an error.
#pragma once

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>

namespace spillway::server {

namespace asio = boost::asio;
using boost::system::error_code;

class Stream {
 public:
  using executor_type = asio::any_io_executor;
  using Handler = asio::any_completion_handler<void(error_code, size_t)>;
  using DoneHandler = asio::any_completion_handler<void(error_code)>;

  virtual ~Stream() = default;
  executor_type get_executor() { return executor_; }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, size_t)>(
        [this](auto handler, asio::mutable_buffer into) {
          read_some(into, Handler(std::move(handler)));
        },
        token, first_buffer<asio::mutable_buffer>(buffers));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, size_t)>(
        [this](auto handler, asio::const_buffer from) {
          write_some(from, Handler(std::move(handler)));
        },
        token, first_buffer<asio::const_buffer>(buffers));
  }

  virtual void read_some(asio::mutable_buffer into, Handler handler) = 0;
  virtual void write_some(asio::const_buffer from, Handler handler) = 0;
  // What must happen before the first byte: TLS's handshake; nothing for TCP.
  virtual void handshake(DoneHandler handler) = 0;
  // No more will be written; the peer sees the end. For TLS sends close_notify first.
  virtual void finish_writing(DoneHandler handler) = 0;
  // Ends both directions at once.
  virtual void close() = 0;
  virtual std::string peer() const = 0;  // address, for logs

 protected:
  explicit Stream(executor_type executor) : executor_(std::move(executor)) {}

 private:
  template <class Buffer, class Buffers>
  static Buffer first_buffer(const Buffers& buffers) {
    const auto end = asio::buffer_sequence_end(buffers);
    for (auto it = asio::buffer_sequence_begin(buffers); it != end; ++it) {
      if (Buffer buffer(*it); buffer.size() > 0) return buffer;
    }
    return {};
  }

  executor_type executor_;
};

std::unique_ptr<Stream> make_plain_stream(asio::ip::tcp::socket socket);
// `context` must outlive the stream.
std::unique_ptr<Stream> make_tls_stream(asio::ip::tcp::socket socket, asio::ssl::context& context);

}  // namespace spillway::server
