#include "io/operations.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/check.h"

namespace spillway::io {
namespace {

Error too_late() {
  return {ErrorCode::kDeadlineExceeded, "the disk did not answer before the deadline"};
}

}  // namespace

// Lives in the frame of the coroutine that waits.
class Operation::Waiter final : public EngineLoop::Timer, public StopListener {
 public:
  Waiter(Operations& operations, OperationDriver& driver, std::unique_ptr<Operation> operation,
         StopFlag* stop)
      : operations_(operations), driver_(driver), next_(std::move(operation)), stop_(stop) {}

  void start(Resumer resumer) {
    resumer_ = std::move(resumer);
    operation_ = next_.get();
    operation_->waiter_ = this;
    const Clock::TimePoint deadline = operation_->transfer.deadline;
    if (deadline != Clock::TimePoint::max()) operations_.loop().add_timer(*this, deadline);
    if (stop_ != nullptr) stop_->add(*this);
    driver_.start(std::move(next_));
  }
  void end(Result<> result) {
    unregister();
    operation_->waiter_ = nullptr;
    operation_ = nullptr;
    outcome = std::move(result);
    resumer_.resume();
  }
  void on_timer() override { leave(too_late()); }
  void on_stop() override { leave(cancelled_error()); }

  Result<> outcome;

 private:
  void leave(Error why) {
    Operation& left = *operation_;
    end(std::move(why));
    driver_.give_up(left);
  }
  void unregister() {
    if (TimerHeap::Entry::queued()) operations_.loop().remove_timer(*this);
    if (StopListener::linked()) StopListener::unlink();
  }

  Operations& operations_;
  OperationDriver& driver_;
  std::unique_ptr<Operation> next_;  // until it is started
  Operation* operation_ = nullptr;   // while we wait for it
  StopFlag* const stop_;
  Resumer resumer_;
};

namespace {

bool failed_by_system(const Result<>& result) {
  if (result) return false;
  const ErrorCode code = result.error().code;
  return code == ErrorCode::kIo || code == ErrorCode::kCorrupt ||
         code == ErrorCode::kResourceExhausted;
}

}  // namespace

Operations::~Operations() {
  CHECK(open_ == 0);
  CHECK(drainers_.empty());
}

Task<Result<>> Operations::run(Operation::Kind kind, Transfer transfer, StopFlag* stop) {
  CHECK(transfer.file != nullptr);
  CHECK(transfer.offset % kSectorBytes == 0);
  CHECK(transfer.memory.size() % kSectorBytes == 0);
  CHECK(reinterpret_cast<uintptr_t>(transfer.memory.data()) % kSectorBytes == 0);
  if (stop != nullptr && stop->stopped()) co_return cancelled_error();
  const Clock::TimePoint now = loop_.clock().now();
  if (transfer.deadline <= now) co_return too_late();
  if (kind != Operation::Kind::kSync && transfer.memory.empty()) co_return Result<>();
  ++open_;
  auto operation = std::make_unique<Operation>(kind, std::move(transfer));
  operation->asked = now;
  Operation::Waiter waiter(*this, driver_, std::move(operation), stop);
  co_await suspend(waiter);
  co_return std::move(waiter.outcome);
}

void Operations::end(std::unique_ptr<Operation> operation, Result<> result) {
  CHECK(open_ > 0);
  CHECK(!operation->linked());
  switch (operation->kind) {
    case Operation::Kind::kRead:
      ++stats_.reads;
      stats_.read_bytes += operation->moved;
      break;
    case Operation::Kind::kWrite:
      ++stats_.writes;
      stats_.written_bytes += operation->moved;
      break;
    case Operation::Kind::kSync:
      ++stats_.syncs;
      break;
  }
  if (failed_by_system(result)) ++stats_.errors;
  if (loop_.trace().on()) trace(*operation, result);
  --open_;
  if (operation->abandoned()) {
    ++stats_.abandoned;
  } else {
    operation->waiter_->end(std::move(result));
  }
  operation.reset();
  if (open_ > 0) return;
  for (auto& drainer : std::exchange(drainers_, {})) drainer->resume();
}

void Operations::trace(const Operation& operation, const Result<>& result) {
  const bool read = operation.kind == Operation::Kind::kRead;
  const bool sync = operation.kind == Operation::Kind::kSync;
  TraceEvent event{.name = read   ? "read"
                           : sync ? "flush"
                                  : "write",
                   .lane = read ? TraceLane::kReads : TraceLane::kWrites,
                   .begin = operation.asked,
                   .end = loop_.clock().now(),
                   .result = operation.abandoned()      ? "nobody waited any more"
                             : failed_by_system(result) ? "failed"
                             : result                   ? "ok"
                                                        : "called off"};
  if (!sync) {
    event.arguments[0] = {"bytes", static_cast<int64_t>(operation.moved)};
    event.arguments[1] = {"offset", static_cast<int64_t>(operation.transfer.offset)};
  }
  loop_.trace().add(event);
}

void Operations::end_later(std::unique_ptr<Operation> operation, Error error) {
  loop_.executor().execute([this, ended = std::move(operation), why = std::move(error)]() mutable {
    end(std::move(ended), std::move(why));
  });
}

Task<> Operations::drain() {
  struct Drain {
    Operations& operations;
    void start(Resumer resumer) {
      operations.drainers_.push_back(std::make_unique<Resumer>(std::move(resumer)));
    }
  };
  while (open_ > 0) {
    Drain op{*this};
    co_await suspend(op);
  }
}

RingStats Operations::stats(uint32_t queued) const {
  CHECK(queued <= open_);
  RingStats stats = stats_;
  stats.in_flight = open_ - queued;
  stats.queued = queued;
  return stats;
}

namespace {

std::string what(const Operation& operation, const std::string& path) {
  const std::string at = " at byte " + std::to_string(operation.transfer.offset);
  switch (operation.kind) {
    case Operation::Kind::kRead:
      return "reading " + path + at;
    case Operation::Kind::kWrite:
      return "writing " + path + at;
    case Operation::Kind::kSync:
      return "flushing " + path;
  }
  CHECK(false);
  return "";
}

}  // namespace

std::optional<Result<>> take_answer(Operation& operation, const std::string& path, int64_t answer) {
  constexpr uint32_t kRetriesMax = 16;
  if (answer == -ECANCELED) return cancelled_error();
  const bool busy = answer == -EINTR || answer == -EAGAIN;
  if (answer < 0 && !busy) return system_error(operation, path, static_cast<int>(-answer));
  if (operation.kind == Operation::Kind::kSync && answer == 0) return Result<>();
  if (answer > 0) {
    const size_t moved = operation.moved + static_cast<size_t>(answer);
    CHECK(moved <= operation.transfer.memory.size());
    // A part of a sector is read again, or shows that the file ends in it.
    const size_t whole = moved / kSectorBytes * kSectorBytes;
    const bool goes_on = whole > operation.moved;
    operation.moved = whole;
    if (whole == operation.transfer.memory.size()) return Result<>();
    if (goes_on) {
      operation.retries = 0;
      return std::nullopt;
    }
  }
  const bool at_end = answer >= 0 && operation.kind == Operation::Kind::kRead;
  if (at_end) return ends_early(operation, path);
  if (++operation.retries <= kRetriesMax) return std::nullopt;
  return system_error(operation, path, busy ? static_cast<int>(-answer) : EIO);
}

Error system_error(const Operation& operation, const std::string& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  return {full ? ErrorCode::kResourceExhausted : ErrorCode::kIo,
          what(operation, path) + " failed: " + std::strerror(error_number)};
}

Error ends_early(const Operation& operation, const std::string& path) {
  return {ErrorCode::kCorrupt, what(operation, path) + ": the file ends after " +
                                   std::to_string(operation.moved) + " of " +
                                   std::to_string(operation.transfer.memory.size()) + " bytes"};
}

}  // namespace spillway::io
