// A nursery: all work is spawned into a Scope, and a Scope must be empty when it dies.
//
//   Scope scope(loop.executor());
//   scope.spawn(work(scope.stop()));
//   ...
//   scope.cancel();            // asks
//   co_await scope.join();     // awaits the end
//
// Owner: whoever awaits join(). Thread: that of the executor. Nothing here suspends but join().
// A task that ends by an exception is a bug: the process ends with the exception's message.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>

#include "runtime/stop.h"
#include "runtime/suspend.h"
#include "runtime/task.h"

namespace spillway {

class Scope final : private StopListener {
 public:
  explicit Scope(asio::any_io_executor executor) : executor_(std::move(executor)) {}
  // A scope inside another: when `parent` stops, so does this one.
  Scope(asio::any_io_executor executor, StopFlag& parent);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // Runs `task` on the executor. On an EngineLoop it starts from the queue, never in this call;
  // another executor may start it at once. Allowed while stopping: the task then sees stopped().
  void spawn(Task<> task);
  // Asks all work to stop. It ends in its own time: await join().
  void cancel() { stop_.stop(); }
  // Suspends until no task is left. May be called again, and tasks spawned meanwhile count.
  // REQUIRES: no other join() is waiting.
  Task<> join();

  StopFlag& stop() { return stop_; }
  uint64_t running() const { return running_; }

 private:
  struct JoinOp;
  void on_stop() override { cancel(); }
  void ended();

  asio::any_io_executor executor_;
  StopFlag stop_;
  uint64_t running_ = 0;  // tasks spawned and not yet ended
  Resumer joiner_;
};

}  // namespace spillway
