// A bounded queue from any thread to one consumer on its executor.
//
// At the bound nobody waits: try_push() says no, and the producer tells its client so. A push that
// finds the consumer asleep wakes it through the executor; further pushes wake nobody.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/check.h"
#include "runtime/result.h"
#include "runtime/stop.h"
#include "runtime/suspend.h"
#include "runtime/task.h"

namespace spillway {

template <class T>
class Channel {
 public:
  explicit Channel(size_t capacity) : capacity_(capacity) { CHECK(capacity > 0); }
  ~Channel() { CHECK(waiting_ == nullptr); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Any thread. False when full or closed: `value` then is as it was.
  bool try_push(T&& value) {
    Resumer consumer;
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || queue_.size() >= capacity_) return false;
      queue_.push_back(std::move(value));
      consumer = take_consumer();
    }
    if (consumer) consumer.resume();
    return true;
  }

  // Any thread. What is queued is still popped; after that pop() returns kUnavailable.
  void close() {
    Resumer consumer;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      consumer = take_consumer();
    }
    if (consumer) consumer.resume();
  }

  // Consumer. Suspends while empty. kCancelled once `stop` stopped, even if values are queued.
  // REQUIRES: no other pop() is waiting.
  Task<Result<T>> pop(StopFlag& stop) {
    for (;;) {
      if (stop.stopped()) co_return cancelled_error();
      if (auto value = try_pop()) co_return std::move(*value);
      if (closed()) co_return Error{ErrorCode::kUnavailable, "the channel is closed"};
      PopOp op(*this, stop);
      co_await suspend(op);
      if (op.linked()) op.unlink();
    }
  }

  // Consumer's thread. Nothing when empty.
  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return std::nullopt;
    std::optional<T> value(std::move(queue_.front()));
    queue_.pop_front();
    return value;
  }

  // Any thread; a snapshot.
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return queue_.size();
  }
  // Closed, and nothing is left to pop.
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_ && queue_.empty();
  }

 private:
  // Lives in pop()'s frame. Whoever takes it from waiting_ under the lock resumes it.
  struct PopOp final : StopListener {
    PopOp(Channel& of, StopFlag& by) : channel(of), stop(by) {}
    void start(Resumer by) {
      stop.add(*this);  // first: once published, another thread may resume us
      resumer = std::move(by);
      Resumer now;
      {
        const std::lock_guard lock(channel.mutex_);
        CHECK(channel.waiting_ == nullptr);
        channel.waiting_ = this;
        if (!channel.queue_.empty() || channel.closed_) now = channel.take_consumer();
      }
      if (now) now.resume();
    }
    void on_stop() override {
      Resumer now;
      {
        const std::lock_guard lock(channel.mutex_);
        if (channel.waiting_ == this) now = channel.take_consumer();
      }
      if (now) now.resume();
    }
    Channel& channel;
    StopFlag& stop;
    Resumer resumer;
  };

  // REQUIRES: mutex_ is held.
  Resumer take_consumer() {
    if (waiting_ == nullptr) return Resumer();
    return std::move(std::exchange(waiting_, nullptr)->resumer);
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<T> queue_;  // at most capacity_
  bool closed_ = false;
  PopOp* waiting_ = nullptr;
};

}  // namespace spillway
