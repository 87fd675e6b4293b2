#include "server/websocket.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/websocket.hpp>
#include <deque>

#include "server/websocket_layer.h"

namespace spillway::server {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;

// What a peer has to read the last events and answer a close frame.
constexpr std::chrono::seconds kCloseLimit{5};

bool has_token(std::string_view list, std::string_view token) {
  const auto same = [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? a + 32 : a) == (b >= 'A' && b <= 'Z' ? b + 32 : b);
  };
  size_t at = 0;
  while (at <= list.size()) {
    const size_t end = std::min(list.find(',', at), list.size());
    std::string_view item = list.substr(at, end - at);
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (std::equal(item.begin(), item.end(), token.begin(), token.end(), same)) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

struct WebSocket::Impl {
  Impl(Connection& connection, Wake& wake, const WebSocketLimits& limits)
      : traffic(connection.stream(), wake, limits.write),
        stream(WebSocketLayer(connection.stream(), traffic, connection.take_received())),
        closer(connection.stream().get_executor()) {
    websocket::stream_base::timeout timeout{};
    timeout.handshake_timeout = limits.handshake;
    timeout.idle_timeout = limits.idle;
    timeout.keep_alive_pings = true;
    stream.set_option(timeout);
    stream.read_message_max(limits.message_bytes);
    stream.auto_fragment(false);
    stream.text(true);
  }

  StreamTraffic traffic;
  websocket::stream<WebSocketLayer, false> stream;
  beast::flat_buffer inbound;
  bool reading = false;
  bool message_ready = false;
  std::deque<std::string> outbound;
  bool writing = false;
  bool close_wanted = false;
  bool closing = false;
  websocket::close_reason reason;
  asio::steady_timer closer;  // started by close(): then the peer has that long to take its part
  bool closer_pending = false;
};

WebSocket::WebSocket(Connection& connection, Wake& wake, const WebSocketLimits& limits)
    : connection_(connection),
      wake_(wake),
      impl_(std::make_unique<Impl>(connection, wake, limits)) {}

WebSocket::~WebSocket() {
  CHECK(!impl_->reading);
  CHECK(!impl_->writing);
  CHECK(!impl_->closing);
  CHECK(!impl_->closer_pending);
  CHECK(impl_->traffic.quiet());
}

bool WebSocket::is_upgrade(const RequestHead& head) {
  return head.method == "GET" && has_token(head.field("connection"), "upgrade") &&
         has_token(head.field("upgrade"), "websocket");
}

Task<bool> WebSocket::accept(const RequestHead& head, const HeaderFields& fields) {
  http::request<http::empty_body> request;
  request.version(11);
  request.method(http::verb::get);
  request.target(head.target);
  for (const auto& [name, value] : head.fields) request.insert(name, value);
  // Of the subprotocols that clients use to carry a key, the plain one is agreed to.
  const bool realtime = has_token(head.field("sec-websocket-protocol"), "realtime");
  impl_->stream.set_option(
      websocket::stream_base::decorator([fields, realtime](websocket::response_type& response) {
        response.erase(http::field::server);  // Beast's name and version
        for (const auto& [name, value] : fields) response.set(name, value);
        if (realtime) response.set(http::field::sec_websocket_protocol, "realtime");
      }));
  error_code error;
  bool done = false;
  impl_->stream.async_accept(request, [&](error_code result) {
    error = result;
    done = true;
    wake_.notify();
  });
  while (!done) co_await wake_.wait();
  if (error) {
    ended_ = true;
    co_return false;
  }
  read();
  co_return true;
}

void WebSocket::read() {
  impl_->reading = true;
  impl_->stream.async_read_some(impl_->inbound, 0, [this](error_code error, size_t bytes) {
    impl_->reading = false;
    if (error) {
      on_end();
    } else if (!impl_->stream.is_message_done()) {
      const bool first = impl_->inbound.size() == bytes;
      read();
      if (!first) return;
      began_ = true;
    } else {
      impl_->message_ready = true;
      began_ = false;
    }
    wake_.notify();
  });
}

void WebSocket::on_end() {
  ended_ = true;
  impl_->outbound.resize(std::min<size_t>(impl_->outbound.size(), impl_->writing ? 1 : 0));
  queued_bytes_ = 0;
}

std::optional<std::string> WebSocket::take_message() {
  if (!impl_->message_ready || ended_) return std::nullopt;
  std::string message = beast::buffers_to_string(impl_->inbound.data());
  impl_->inbound = beast::flat_buffer();  // a large message's memory goes back
  impl_->message_ready = false;
  read();
  if (impl_->close_wanted) return std::nullopt;
  return message;
}

void WebSocket::send(std::string text) {
  if (ended_ || impl_->close_wanted) return;
  queued_bytes_ += text.size();
  impl_->outbound.push_back(std::move(text));
  write();
}

void WebSocket::close(uint16_t code, std::string reason) {
  if (ended_ || impl_->close_wanted) return;
  impl_->close_wanted = true;
  reason.resize(std::min<size_t>(reason.size(), 120));  // a control frame's bound
  impl_->reason = websocket::close_reason(static_cast<websocket::close_code>(code), reason);
  impl_->closer_pending = true;
  impl_->closer.expires_after(kCloseLimit);
  impl_->closer.async_wait([this](error_code error) {
    impl_->closer_pending = false;
    if (!error) connection_.stream().close();  // what is in flight then ends
    wake_.notify();
  });
  write();
}

void WebSocket::write() {
  if (impl_->writing || impl_->closing || ended_) return;
  if (!impl_->outbound.empty()) {
    impl_->writing = true;
    impl_->stream.async_write(
        asio::buffer(impl_->outbound.front()), [this](error_code error, size_t) {
          impl_->writing = false;
          queued_bytes_ -= std::min(queued_bytes_, impl_->outbound.front().size());
          impl_->outbound.pop_front();
          if (error) on_end();
          write();
          wake_.notify();
        });
    return;
  }
  if (!impl_->close_wanted) return;
  impl_->closing = true;
  impl_->stream.async_close(impl_->reason, [this](error_code) {
    impl_->closing = false;
    on_end();
    wake_.notify();
  });
}

Task<> WebSocket::finish() {
  on_end();
  impl_->closer.cancel();
  impl_->traffic.stop();
  while (impl_->reading || impl_->writing || impl_->closing || impl_->closer_pending ||
         !impl_->traffic.quiet()) {
    co_await wake_.wait();
  }
}

}  // namespace spillway::server
