#include "runtime/scope.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <cstdio>
#include <exception>

namespace spillway {
namespace {

// Asio would throw from the next co_await after one of its own cancellations (STYLE.md, Async).
Task<> without_asio_throwing(Task<> task) {
  co_await asio::this_coro::throw_if_cancelled(false);
  co_await std::move(task);
}

void check_no_exception(std::exception_ptr failure) {
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "spillway: a spawned task threw: %s\n", e.what());
  } catch (...) {
    std::fprintf(stderr, "spillway: a spawned task threw\n");
  }
  const bool a_spawned_task_threw = true;
  CHECK(!a_spawned_task_threw);
}

}  // namespace

Scope::Scope(asio::any_io_executor executor, StopFlag& parent) : executor_(std::move(executor)) {
  if (parent.stopped()) {
    stop_.stop();
  } else {
    parent.add(*this);
  }
}

Scope::~Scope() {
  CHECK(running_ == 0);
  CHECK(!joiner_);
  if (linked()) unlink();
}

void Scope::spawn(Task<> task) {
  ++running_;
  asio::co_spawn(executor_, without_asio_throwing(std::move(task)),
                 [this](std::exception_ptr failure) {
                   check_no_exception(std::move(failure));
                   ended();
                 });
}

void Scope::ended() {
  CHECK(running_ > 0);
  --running_;
  if (running_ == 0 && joiner_) joiner_.resume();
}

struct Scope::JoinOp {
  Scope& scope;
  void start(Resumer resumer) { scope.joiner_ = std::move(resumer); }
};

Task<> Scope::join() {
  CHECK(!joiner_);
  JoinOp op{*this};
  // A task may have been spawned between the last one's end and our turn: look again.
  while (running_ > 0) co_await suspend(op);
}

}  // namespace spillway
