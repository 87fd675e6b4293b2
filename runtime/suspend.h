// The one way a coroutine of ours waits: it suspends and hands its Resumer to an operation, which
// resumes it once, from any thread, through the queue of the executor it runs on.
//
//   struct Op { void start(Resumer resumer); };   // usually a local of the waiting coroutine
//   co_await suspend(op);
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <utility>

#include "runtime/check.h"
#include "runtime/task.h"

namespace spillway {

// A suspended coroutine, or nothing. Destroying one that was not resumed destroys the coroutine.
class Resumer {
 public:
  using Handler = asio::async_result<asio::use_awaitable_t<>, void()>::handler_type;

  Resumer() = default;
  explicit Resumer(Handler handler) : handler_(std::move(handler)) {}
  Resumer(Resumer&& other) noexcept : handler_(std::move(other.handler_)) {
    other.handler_.reset();
  }
  Resumer& operator=(Resumer&& other) noexcept {
    handler_.reset();
    if (other.handler_) handler_.emplace(std::move(*other.handler_));  // it cannot be assigned
    other.handler_.reset();
    return *this;
  }

  explicit operator bool() const { return handler_.has_value(); }
  // Queues the coroutine on its executor; never runs it inside this call, and leaves nothing here.
  // Any thread. Where the executor's queue is full, a thread that is not the executor's own waits
  // (engine_loop.h). REQUIRES: there is one.
  void resume() {
    CHECK(handler_.has_value());
    Handler handler(std::move(*handler_));
    handler_.reset();  // before it may run: what holds this Resumer may be gone then
    auto executor = asio::require(handler.get_executor(), asio::execution::blocking.never);
    executor.execute(std::move(handler));
  }

 private:
  std::optional<Handler> handler_;
};

// Suspends the calling coroutine, then calls op.start(Resumer). Another thread may resume it before
// start() returns: `op` must then not be touched any more.
template <class Op>
Task<> suspend(Op& op) {
  return asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&op](Resumer::Handler handler) { op.start(Resumer(std::move(handler))); },
      asio::use_awaitable);
}

}  // namespace spillway
