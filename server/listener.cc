#include "server/listener.h"

#include <boost/asio/steady_timer.hpp>

#include "runtime/log.h"
#include "server/session.h"
#include "server/stream.h"
#include "server/wake.h"

namespace spillway::server {
namespace {

using asio::ip::tcp;
constexpr std::chrono::milliseconds kBackOff{100};

// Ends the accept in progress when the server drains.
class AcceptStopper final : public StopListener {
 public:
  AcceptStopper(StopFlag& flag, Wake& wake) : wake_(wake) {
    if (!flag.stopped()) flag.add(*this);
  }
  ~AcceptStopper() {
    if (linked()) unlink();
  }
  void on_stop() override { wake_.notify(); }

 private:
  Wake& wake_;
};

struct Accepting {
  bool pending = false;
  error_code ec;
  std::optional<tcp::socket> socket;
};

}  // namespace

Result<tcp::acceptor> listen_on(asio::any_io_executor executor, const std::string& host,
                                uint16_t port) {
  const std::string where = host + ":" + std::to_string(port);
  error_code ec;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, ec);
  if (ec)
    return invalid_argument("--host " + host + " is no IP address (try 127.0.0.1 or 0.0.0.0)");
  const tcp::endpoint endpoint(address, port);
  tcp::acceptor acceptor(executor);
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(tcp::acceptor::max_listen_connections, ec);
  if (ec == asio::error::address_in_use) {
    return Error{ErrorCode::kIo, "another program listens on " + where + ": choose another --port"};
  }
  if (ec) return Error{ErrorCode::kIo, "cannot listen on " + where + ": " + ec.message()};
  return acceptor;
}

Task<> accept_connections(Service& service, tcp::acceptor& acceptor, asio::ssl::context* tls,
                          Scope& sessions) {
  Wake wake;
  const AcceptStopper stopper(service.drain, wake);
  Accepting accepting;
  asio::steady_timer timer(acceptor.get_executor());
  bool resting = false;
  const auto rest = [&] {
    resting = true;
    service.metrics.connection_refused();
    timer.expires_after(kBackOff);
    timer.async_wait([&](error_code) {
      resting = false;
      wake.notify();
    });
  };
  while (!service.drain.stopped()) {
    if (!accepting.pending && !resting) {
      if (sessions.running() >= service.options.connections_max) {
        rest();
      } else {
        accepting.pending = true;
        acceptor.async_accept([&](error_code ec, tcp::socket socket) {
          accepting.pending = false;
          accepting.ec = ec;
          accepting.socket.emplace(std::move(socket));
          wake.notify();
        });
      }
    }
    co_await wake.wait();
    if (!accepting.socket) continue;
    tcp::socket socket = std::move(*accepting.socket);
    accepting.socket.reset();
    if (accepting.ec) {
      spdlog::warn("accept error=\"{}\"", accepting.ec.message());
      if (!service.drain.stopped()) rest();  // EMFILE and its like: others must close first
      continue;
    }
    sessions.spawn(serve_connection(service,
                                    tls == nullptr ? make_plain_stream(std::move(socket))
                                                   : make_tls_stream(std::move(socket), *tls),
                                    sessions.stop()));
  }
  error_code ignored;
  acceptor.close(ignored);
  timer.cancel();
  while (accepting.pending || resting) co_await wake.wait();
}

}  // namespace spillway::server
