#include "server/server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <optional>
#include <thread>

#include "runtime/log.h"
#include "runtime/scope.h"
#include "server/listener.h"
#include "server/stream.h"
#include "server/wake.h"

namespace spillway::server {
namespace {

Result<std::unique_ptr<asio::ssl::context>> make_tls(const ServerOptions& options) {
  if (options.certfile.empty() && options.keyfile.empty()) return nullptr;
  if (options.certfile.empty() || options.keyfile.empty()) {
    return invalid_argument("--ssl-certfile and --ssl-keyfile go together");
  }
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code ec;
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                           asio::ssl::context::no_tlsv1_1,
                       ec);
  if (!ec) context->use_certificate_chain_file(options.certfile, ec);
  if (ec) return invalid_argument("--ssl-certfile " + options.certfile + ": " + ec.message());
  context->use_private_key_file(options.keyfile, asio::ssl::context::pem, ec);
  if (ec) return invalid_argument("--ssl-keyfile " + options.keyfile + ": " + ec.message());
  return context;
}

}  // namespace

struct Server::Impl {
  explicit Impl(const ServerOptions& options)
      : service(options),
        sessions(context.get_executor()),
        accepting(context.get_executor()),
        ending(context.get_executor()) {}

  // Runs `work` on the network thread and waits for it.
  template <class F>
  void call(F work) {
    std::promise<void> done;
    asio::post(context, [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  asio::io_context context{1};
  Service service;
  std::unique_ptr<asio::ssl::context> tls;
  std::optional<asio::ip::tcp::acceptor> acceptor;
  uint16_t port = 0;
  Scope sessions;   // connections
  Scope accepting;  // the accept loop
  Scope ending;     // the drain
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::thread thread;
  bool drained = false;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  auto tls = make_tls(options);
  if (!tls) return tls.error();
  impl->tls = std::move(*tls);
  auto acceptor = listen_on(impl->context.get_executor(), options.host, options.port);
  if (!acceptor) return acceptor.error();
  impl->acceptor.emplace(std::move(*acceptor));
  impl->port = impl->acceptor->local_endpoint().port();
  impl->work.emplace(impl->context.get_executor());
  impl->accepting.spawn(
      accept_connections(impl->service, *impl->acceptor, impl->tls.get(), impl->sessions));
  impl->thread = std::thread([context = &impl->context] { context->run(); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->port; }

void Server::set_model(std::shared_ptr<const ServedModel> model) {
  impl_->call([&] { impl_->service.model = std::move(model); });
}

void Server::set_load_error(std::string message) {
  impl_->call([&] { impl_->service.load_error = std::move(message); });
}

namespace {

// A timer whose handler has run when this is over, so that nothing of it outlives the coroutine.
struct Patience {
  Patience(asio::any_io_executor executor, Scope& sessions, std::chrono::milliseconds patience)
      : timer(std::move(executor), patience) {
    timer.async_wait([this, &sessions](error_code ec) {
      waiting = false;
      if (!ec) sessions.cancel();
      wake.notify();
    });
  }
  asio::steady_timer timer;
  Wake wake;
  bool waiting = true;
};

// Waits until the sessions have ended; after `patience` asks them to.
Task<> end_sessions(Scope& accepting, Scope& sessions, std::chrono::milliseconds patience,
                    std::promise<void>& done) {
  co_await accepting.join();
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Patience waiter(executor, sessions, patience);
  co_await sessions.join();
  waiter.timer.cancel();
  while (waiter.waiting) co_await waiter.wake.wait();
  done.set_value();
}

}  // namespace

void Server::drain(std::chrono::milliseconds patience) {
  if (std::exchange(impl_->drained, true)) return;
  std::promise<void> done;
  Impl& impl = *impl_;
  asio::post(impl.context, [&] {
    impl.service.drain.stop();
    impl.ending.spawn(end_sessions(impl.accepting, impl.sessions, patience, done));
  });
  done.get_future().wait();
  impl.call([&] { impl.service.model.reset(); });
}

Server::~Server() {
  drain(std::chrono::milliseconds(0));
  impl_->work.reset();
  impl_->thread.join();
}

}  // namespace spillway::server
