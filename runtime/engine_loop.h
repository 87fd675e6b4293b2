// The engine's executor: one thread that runs coroutines from a local queue, fires timers, and
// blocks in one place, its Parker. No io_context, no reactor; an idle loop uses no CPU.
//
// Threads: run(), run_one(), sleep_*() belong to the loop's thread, which is the first that calls
// run() or run_one(). The executor may be used from any thread: from the loop's own it appends to
// the local queue; from another it appends to the mailbox, and wakes the loop if it is parked.
// Bound: the mailbox. A foreign thread that finds it full waits until the loop has emptied it, so
// the loop's thread must never wait for a thread that posts. The local queue is bounded by the
// coroutines there are: each has at most one entry.
//
// Order: first in, first out. Nothing is ever run inside execute(): no call into a coroutine from
// the middle of another. Measured (bench/runtime_bench, Xeon at 2.1 GHz): a suspension through
// the queue 85 ns, an await of a Task 23 ns, a spawn 200 to 400 ns; from a foreign post to the work
// on a parked loop 7 to 9 us, in io_uring and in ppoll alike.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution_context.hpp>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "runtime/parker.h"
#include "runtime/result.h"
#include "runtime/stop.h"
#include "runtime/task.h"
#include "runtime/timer_heap.h"
#include "runtime/trace.h"

namespace spillway {

class EngineLoop final : public asio::execution_context {
 public:
  class Executor;
  static constexpr uint32_t kMailboxMax = 65536;

  // `clock` and `parker` must outlive the loop.
  EngineLoop(const Clock& clock, Parker& parker, uint32_t mailbox_max = kMailboxMax);
  // REQUIRES: no coroutine sleeps on it any more, and no thread uses its executor.
  ~EngineLoop();

  asio::any_io_executor executor();

  // Runs `main` and all that becomes ready until `main` has ended. May be called again.
  void run(Task<> main);
  // Runs the oldest ready piece of work, without parking. False when none was ready. For tests that
  // stop a program after every possible event.
  bool run_one();
  // Parks until something may be ready. Loop's thread, outside any coroutine; for tests.
  void park();

  // Something that happens at a time. on_timer() is called once, already out of the heap; it may
  // only queue work (resume a coroutine, request a stop). Must not be queued when it dies.
  class Timer : public TimerHeap::Entry {
   public:
    virtual void on_timer() = 0;

   protected:
    ~Timer() = default;
  };
  // Loop's thread. REQUIRES: !timer.queued() to add, timer.queued() to remove.
  void add_timer(Timer& timer, Clock::TimePoint at) { timers_.add(timer, at); }
  void remove_timer(Timer& timer) { timers_.remove(timer); }

  // Something outside that wakes nobody, such as a word of memory that a device writes. While one
  // is added the loop looks at it once a turn and sleeps for kPollEvery at most; without one it
  // sleeps for as long as it may. Must have been removed when it dies.
  class Poller {
   public:
    virtual void on_poll() = 0;  // may only queue work, and remove itself

   protected:
    ~Poller() = default;
  };
  // About a hundredth of a short step; each look costs a few microseconds of the loop's thread.
  static constexpr std::chrono::microseconds kPollEvery{30};
  // Loop's thread.
  void add_poller(Poller& poller);
  void remove_poller(Poller& poller);  // REQUIRES: it was added

  // The loop that `executor` belongs to, which a coroutine asks for its own. REQUIRES: it is one's.
  static EngineLoop& of(const asio::any_io_executor& executor);

  // Suspends until `at`, or returns kCancelled as soon as `stop` stops. Loop's thread.
  Task<Result<>> sleep_until(Clock::TimePoint at, StopFlag& stop);
  Task<Result<>> sleep_for(Clock::Duration time, StopFlag& stop);

  const Clock& clock() const { return clock_; }
  size_t timers() const { return timers_.size(); }
  // What happens on this loop, for who wants to see. Loop's thread.
  Trace& trace() { return trace_; }
  const Trace& trace() const { return trace_; }

 private:
  struct Sleep;
  struct Work {
    virtual ~Work() = default;
    virtual void run() = 0;
    Work* next = nullptr;
  };
  template <class F>
  struct WorkOf final : Work {
    explicit WorkOf(F f) : function(std::move(f)) {}
    void run() override {
      F last = std::move(function);  // freed before it runs, so that it may queue into this memory
      delete this;
      std::move(last)();
    }
    F function;
  };
  struct Queue {  // singly linked, owns its elements
    void push(Work* work);
    Work* pop();  // null when empty
    void append(Queue& other);
    Work* first = nullptr;
    Work* last = nullptr;
    uint64_t count = 0;
  };

  void enqueue(Work* work);
  void post(Work* work);
  bool on_thread() const;
  void enter();
  void collect();
  void empty_mailbox();
  void fire_timers();
  void look();

  const Clock& clock_;
  Parker& parker_;
  const uint32_t mailbox_max_;
  std::atomic<std::thread::id> thread_{};  // set once, by enter()

  Queue local_;
  TimerHeap timers_;
  std::vector<Poller*> pollers_;
  Trace trace_;

  std::mutex mutex_;
  std::condition_variable room_;
  Queue mailbox_;                  // under mutex_
  bool parked_ = false;            // under mutex_: the next post must wake
  std::atomic<bool> mail_{false};  // a hint that saves the lock when the mailbox is empty
};

// Satisfies asio::any_io_executor. Copyable; must not outlive its loop.
class EngineLoop::Executor {
 public:
  explicit Executor(EngineLoop& loop) : loop_(&loop) {}

  template <class F>
  void execute(F&& function) const {
    loop_->enqueue(new WorkOf<std::decay_t<F>>(std::forward<F>(function)));
  }
  EngineLoop& query(asio::execution::context_t) const noexcept { return *loop_; }
  static constexpr asio::execution::blocking_t query(asio::execution::blocking_t) noexcept {
    return asio::execution::blocking.never;
  }
  Executor require(asio::execution::blocking_t::never_t) const noexcept { return *this; }
  friend bool operator==(const Executor&, const Executor&) noexcept = default;

 private:
  EngineLoop* loop_;
};

}  // namespace spillway
