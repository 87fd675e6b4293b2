#include "runtime/semaphore.h"

namespace spillway {

struct Semaphore::AcquireOp final : Waiter, StopListener {
  AcquireOp(Semaphore& of, uint64_t wanted, StopFlag& by)
      : semaphore(of), units(wanted), stop(by) {}

  void start(Resumer resumer) {
    resumer_ = std::move(resumer);
    semaphore.waiters_.push_back(*this);
    stop.add(*this);
  }
  void grant() {  // already out of the queue
    granted = true;
    StopListener::unlink();
    resumer_.resume();
  }
  void on_stop() override {
    Waiter::unlink();
    semaphore.serve();  // it may have been what the others waited behind
    resumer_.resume();
  }

  Semaphore& semaphore;
  const uint64_t units;
  StopFlag& stop;
  bool granted = false;

 private:
  Resumer resumer_;
};

Semaphore::~Semaphore() {
  CHECK(available_ == capacity_);
  CHECK(waiters_.empty());
}

std::optional<Permit> Semaphore::try_acquire(uint64_t units) {
  CHECK(units <= capacity_);
  if (!waiters_.empty() || !has_room(units)) return std::nullopt;
  available_ -= units;
  return Permit(*this, units);
}

Task<Result<Permit>> Semaphore::acquire(uint64_t units, StopFlag& stop) {
  if (stop.stopped()) co_return cancelled_error();
  if (auto permit = try_acquire(units)) co_return std::move(*permit);
  AcquireOp op(*this, units, stop);
  co_await suspend(op);
  if (!op.granted) co_return cancelled_error();
  co_return Permit(*this, units);
}

bool Semaphore::has_room(uint64_t units) const {
  const uint64_t out = capacity_ - available_;
  return units <= available_ && (out == 0 || out + units <= limit_);
}

void Semaphore::set_limit(uint64_t units) {
  limit_ = units;
  serve();
}

void Semaphore::release(uint64_t units) {
  CHECK(units <= capacity_ - available_);
  available_ += units;
  serve();
}

// Units go to a waiter when they are granted, before it runs: nobody can take them in between.
void Semaphore::serve() {
  while (!waiters_.empty()) {
    auto& op = static_cast<AcquireOp&>(waiters_.front());
    if (!has_room(op.units)) return;
    available_ -= op.units;
    waiters_.pop_front();
    op.grant();
  }
}

void Permit::release() { shrink_to(0); }

Permit Permit::split(uint64_t units) {
  CHECK(units <= units_);
  if (units == 0) return Permit();
  units_ -= units;
  Permit part(*semaphore_, units);
  if (units_ == 0) semaphore_ = nullptr;
  return part;
}

void Permit::shrink_to(uint64_t units) {
  CHECK(units <= units_);
  const uint64_t back = units_ - units;
  units_ = units;
  if (semaphore_ != nullptr && back > 0) semaphore_->release(back);
}

}  // namespace spillway
