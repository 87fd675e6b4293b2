// How work is told to stop. A Scope owns a StopFlag; an operation that waits registers itself in it
// for as long as it waits. Stopping requests: the operation then ends with kCancelled, and whoever
// owns the work awaits that end (scope.h).
//
// Threads: one, that of the executor the work runs on.
#pragma once

#include "runtime/intrusive_list.h"
#include "runtime/result.h"

namespace spillway {

inline Error cancelled_error() { return {ErrorCode::kCancelled, "cancelled"}; }

// What a waiting operation registers. on_stop() is called once, already unregistered; it may only
// queue work (resume a coroutine, request another stop), never run a coroutine inside the call.
class StopListener : public ListNode<StopListener> {
 public:
  virtual void on_stop() = 0;

 protected:
  ~StopListener() = default;
};

class StopFlag {
 public:
  bool stopped() const { return stopped_; }
  // Tells every listener, in the order of registration. A second call does nothing.
  void stop() {
    stopped_ = true;
    while (!listeners_.empty()) listeners_.pop_front().on_stop();
  }
  // REQUIRES: !stopped(). Unregister with listener.unlink().
  void add(StopListener& listener) {
    CHECK(!stopped_);
    listeners_.push_back(listener);
  }

 private:
  bool stopped_ = false;
  IntrusiveList<StopListener> listeners_;
};

}  // namespace spillway
