// What a session waits on: everything that happens to it (bytes, a timer, outputs, a stop) sets
// its own flag and notifies; the session wakes and looks at all of them. Network thread only.
#pragma once

#include <utility>

#include "runtime/suspend.h"
#include "runtime/task.h"

namespace spillway::server {

class Wake {
 public:
  // Ends the wait in progress, or the next one at once. Never runs the waiter inside the call.
  void notify() {
    if (resumer_) {
      resumer_.resume();
    } else {
      notified_ = true;
    }
  }

  // Suspends until notified since the last wait. REQUIRES: no other wait.
  Task<> wait() {
    if (std::exchange(notified_, false)) co_return;
    Op op{*this};
    co_await suspend(op);
  }

 private:
  struct Op {
    Wake& wake;
    void start(Resumer resumer) { wake.resumer_ = std::move(resumer); }
  };

  Resumer resumer_;
  bool notified_ = false;
};

}  // namespace spillway::server
