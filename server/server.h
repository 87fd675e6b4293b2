// The HTTP server: one network thread around one io_context. No Asio in this header.
//
//   auto server = Server::start(options);        // the port is open, /health says 503
//   (*server)->set_model(model);                 // now it serves
//   (*server)->drain(seconds);                   // SIGTERM: finish what runs, then end the rest
//
// Threads: any, one call at a time. The engine behind the model must be destroyed after drain()
// and before the server.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/result.h"
#include "server/service.h"

namespace spillway::server {

class Server {
 public:
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options);
  // Drains with no patience if drain() was not called.
  ~Server();

  uint16_t port() const;
  void set_model(std::shared_ptr<const ServedModel> model);
  void set_load_error(std::string message);
  // Stops accepting; idle connections close; answers in progress have `patience` to end, then end
  // with an error. Returns when no connection is left. Lets go of the model.
  void drain(std::chrono::milliseconds patience);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::server
