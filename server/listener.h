// Accepts connections and spawns their sessions. Out of file descriptors it backs off and goes on
// (case H4); past the bound on connections it leaves them in the kernel's queue.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "runtime/result.h"
#include "runtime/scope.h"
#include "server/service.h"
#include "server/stream.h"

namespace spillway::server {

// Opens the address. The error says what to do when the port is taken.
Result<asio::ip::tcp::acceptor> listen_on(asio::any_io_executor executor, const std::string& host,
                                          uint16_t port);
// Runs until service.drain stops. `tls` null: plain. Sessions are spawned into `sessions`.
Task<> accept_connections(Service& service, asio::ip::tcp::acceptor& acceptor,
                          asio::ssl::context* tls, Scope& sessions);

}  // namespace spillway::server
