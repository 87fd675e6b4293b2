#include "runtime/engine_loop.h"

#include <algorithm>
#include <optional>

#include "runtime/scope.h"
#include "runtime/suspend.h"

namespace spillway {

void EngineLoop::Queue::push(Work* work) {
  (last == nullptr ? first : last->next) = work;
  last = work;
  ++count;
}

EngineLoop::Work* EngineLoop::Queue::pop() {
  Work* work = first;
  if (work == nullptr) return nullptr;
  first = std::exchange(work->next, nullptr);
  if (first == nullptr) last = nullptr;
  --count;
  return work;
}

void EngineLoop::Queue::append(Queue& other) {
  if (other.first == nullptr) return;
  (last == nullptr ? first : last->next) = other.first;
  last = other.last;
  count += other.count;
  other = Queue{};
}

EngineLoop::EngineLoop(const Clock& clock, Parker& parker, uint32_t mailbox_max)
    : clock_(clock), parker_(parker), mailbox_max_(mailbox_max) {
  CHECK(mailbox_max > 0);
}

EngineLoop::~EngineLoop() {
  empty_mailbox();
  // Work that nobody ran: destroying it may destroy a coroutine, which may queue more.
  while (Work* work = local_.pop()) delete work;
  CHECK(timers_.size() == 0);
  CHECK(pollers_.empty());
  shutdown();
  destroy();
}

asio::any_io_executor EngineLoop::executor() { return Executor(*this); }

bool EngineLoop::on_thread() const {
  return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

void EngineLoop::enter() {
  if (on_thread()) return;
  CHECK(thread_.load(std::memory_order_relaxed) == std::thread::id{});
  thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

void EngineLoop::enqueue(Work* work) {
  if (on_thread()) {
    local_.push(work);
  } else {
    post(work);
  }
}

void EngineLoop::post(Work* work) {
  std::unique_lock lock(mutex_);
  while (mailbox_.count >= mailbox_max_) {
    const bool somebody_empties_it = thread_.load(std::memory_order_relaxed) != std::thread::id{};
    CHECK(somebody_empties_it);
    room_.wait(lock);
  }
  mailbox_.push(work);
  mail_.store(true, std::memory_order_relaxed);
  // Inside the lock: once it is released the loop may end and the parker with it.
  if (std::exchange(parked_, false)) parker_.wake();
}

void EngineLoop::empty_mailbox() {
  const std::lock_guard lock(mutex_);
  if (mailbox_.count >= mailbox_max_) room_.notify_all();
  local_.append(mailbox_);
  mail_.store(false, std::memory_order_relaxed);
}

void EngineLoop::collect() {
  if (mail_.load(std::memory_order_relaxed)) empty_mailbox();
  // With nothing to run, park() delivers what happened, by the same call that waits. What has
  // happened comes before the timers that limit it.
  const auto next = timers_.next();
  if (local_.first != nullptr || (next && *next <= clock_.now())) parker_.poll();
  look();
  fire_timers();
}

// One that removes itself makes the next one wait for the next turn.
void EngineLoop::look() {
  for (size_t i = 0; i < pollers_.size(); ++i) pollers_[i]->on_poll();
}

void EngineLoop::add_poller(Poller& poller) { pollers_.push_back(&poller); }

void EngineLoop::remove_poller(Poller& poller) {
  const auto at = std::find(pollers_.begin(), pollers_.end(), &poller);
  CHECK(at != pollers_.end());
  pollers_.erase(at);
}

EngineLoop& EngineLoop::of(const asio::any_io_executor& executor) {
  const auto* const own = executor.target<Executor>();
  CHECK(own != nullptr);
  return asio::query(*own, asio::execution::context);
}

bool EngineLoop::run_one() {
  enter();
  if (local_.first == nullptr) collect();
  Work* work = local_.pop();
  if (work == nullptr) return false;
  work->run();
  return true;
}

void EngineLoop::park() {
  enter();
  {
    const std::lock_guard lock(mutex_);
    if (mailbox_.first != nullptr) return;
    parked_ = true;
  }
  std::optional<std::chrono::nanoseconds> timeout;
  if (const auto next = timers_.next()) {
    timeout = std::max(*next - clock_.now(), Clock::Duration::zero());
  }
  if (!pollers_.empty()) {
    const std::chrono::nanoseconds soon = kPollEvery;
    timeout = timeout ? std::min(*timeout, soon) : soon;
  }
  parker_.park(timeout);
  const std::lock_guard lock(mutex_);
  parked_ = false;
}

void EngineLoop::run(Task<> main) {
  enter();
  bool ended = false;
  Scope scope(executor());
  scope.spawn(std::move(main));
  while (!ended) {
    collect();
    if (local_.first == nullptr) park();
    // One round: what this round queues waits for the next, so that timers, mail and completions
    // are looked at in between.
    for (uint64_t left = local_.count; left > 0; --left) local_.pop()->run();
    ended = scope.running() == 0;
  }
  while (run_one()) {
  }
}

struct EngineLoop::Sleep final : Timer, StopListener {
  Sleep(EngineLoop& on, Clock::TimePoint until, StopFlag& by) : loop(on), at(until), stop(by) {}
  void start(Resumer resumer) {
    resumer_ = std::move(resumer);
    loop.add_timer(*this, at);
    stop.add(*this);
  }
  void on_timer() override {
    unlink();
    resumer_.resume();
  }
  void on_stop() override {
    stopped = true;
    loop.remove_timer(*this);
    resumer_.resume();
  }

  EngineLoop& loop;
  const Clock::TimePoint at;
  StopFlag& stop;
  bool stopped = false;

 private:
  Resumer resumer_;
};

void EngineLoop::fire_timers() {
  if (timers_.size() == 0) return;
  const Clock::TimePoint now = clock_.now();
  while (TimerHeap::Entry* due = timers_.pop_due(now)) static_cast<Timer*>(due)->on_timer();
}

Task<Result<>> EngineLoop::sleep_until(Clock::TimePoint at, StopFlag& stop) {
  CHECK(on_thread());
  if (stop.stopped()) co_return cancelled_error();
  Sleep sleep(*this, at, stop);
  co_await suspend(sleep);
  if (sleep.stopped) co_return cancelled_error();
  co_return Result<>();
}

Task<Result<>> EngineLoop::sleep_for(Clock::Duration time, StopFlag& stop) {
  return sleep_until(clock_.now() + time, stop);
}

}  // namespace spillway
