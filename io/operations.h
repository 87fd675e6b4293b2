// The reads, writes and syncs of one ring and the coroutines that wait for them: what every ring
// does alike, whatever moves the bytes.
//
// An Operation belongs to the ring from start() until the ring hands it to end(). Its waiter may
// leave before (deadline, stop): it gets its answer at once, while the operation, with the file and
// the owner of the memory in it, lives until it has really ended (cases S7, K5).
//
// Owner: a ring. Thread: the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/ring.h"
#include "runtime/engine_loop.h"
#include "runtime/intrusive_list.h"
#include "runtime/suspend.h"

namespace spillway::io {

class Operation final : public ListNode<Operation> {
 public:
  enum class Kind : uint8_t { kRead, kWrite, kSync };

  Operation(Kind what, Transfer how) : kind(what), transfer(std::move(how)) {}
  bool abandoned() const { return waiter_ == nullptr; }
  std::span<std::byte> rest() const { return transfer.memory.subspan(moved); }

  const Kind kind;
  const Transfer transfer;
  size_t moved = 0;      // bytes of it that are done; whole sectors
  uint32_t retries = 0;  // since bytes moved last
  uint32_t slot = 0;     // the ring's own
  Clock::TimePoint asked{};

 private:
  friend class Operations;
  class Waiter;
  Waiter* waiter_ = nullptr;
};

class OperationDriver {
 public:
  // Begins the operation, or queues it. May call end() only later, not inside this call.
  virtual void start(std::unique_ptr<Operation> operation) = 0;
  // Its waiter has left. The ring may end it early, but not inside this call: it is made from the
  // middle of whatever asked for the stop.
  virtual void give_up(Operation& operation) = 0;

 protected:
  ~OperationDriver() = default;
};

class Operations {
 public:
  Operations(EngineLoop& loop, OperationDriver& driver) : loop_(loop), driver_(driver) {}
  ~Operations();  // REQUIRES: drained
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // Suspends until the operation has ended or nobody waits for it any more. `stop` may be null.
  // REQUIRES: offset, length and address are multiples of kSectorBytes.
  Task<Result<>> run(Operation::Kind kind, Transfer transfer, StopFlag* stop);

  // Tells the waiter, if it is still there, and lets go of the operation and all that it holds.
  void end(std::unique_ptr<Operation> operation, Result<> result);
  // The same from the loop's queue, for where end() may not be called.
  void end_later(std::unique_ptr<Operation> operation, Error error);

  Task<> drain();
  EngineLoop& loop() { return loop_; }
  uint32_t open() const { return open_; }  // started or queued, and not ended
  // All but `queued` is filled in; the ring knows that.
  RingStats stats(uint32_t queued) const;

 private:
  void trace(const Operation& operation, const Result<>& result);

  EngineLoop& loop_;
  OperationDriver& driver_;
  RingStats stats_;
  uint32_t open_ = 0;
  std::vector<std::unique_ptr<Resumer>> drainers_;
};

// Takes in what the system answered: bytes moved, or a negative errno. Empty: what is left is to be
// tried again (a short transfer, EINTR, EAGAIN). Case S6.
std::optional<Result<>> take_answer(Operation& operation, const std::string& path, int64_t answer);

// "kind PATH at OFFSET" and why, for the messages of kIo and kResourceExhausted.
Error system_error(const Operation& operation, const std::string& path, int error_number);
// The file ended after `moved` bytes of a read.
Error ends_early(const Operation& operation, const std::string& path);

}  // namespace spillway::io
