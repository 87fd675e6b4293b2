// The ring where io_uring is refused: a few threads with pread, pwrite and fdatasync, and the same
// semantics.
//
// Threads: its own take operations from one queue, reads first, and hand them back to the engine's
// loop when they have ended; owners die there. One thread never writes, so that a read finds one
// however many writes there are. Bound: one operation per thread; the others wait in the queue,
// which their coroutines bound.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "io/operations.h"
#include "io/ring.h"
#include "runtime/engine_loop.h"
#include "runtime/intrusive_list.h"

namespace spillway::io {

class ThreadRing final : public Ring, private OperationDriver {
 public:
  struct Options {
    uint32_t threads = 4;  // at least 2
    std::string why;       // not io_uring: for description(); may be empty
  };
  ThreadRing(EngineLoop& loop, const Options& options);
  ~ThreadRing() override;  // REQUIRES: drained; while the loop lives
  ThreadRing(const ThreadRing&) = delete;
  ThreadRing& operator=(const ThreadRing&) = delete;

  Result<std::shared_ptr<File>> open(const std::string& path, OpenOptions options) override;
  Result<> rename(const std::string& from, const std::string& to) override;
  Task<Result<>> read(Transfer transfer, StopFlag& stop) override;
  Task<Result<>> write(Transfer transfer, StopFlag& stop) override;
  Task<Result<>> sync(Transfer of, StopFlag& stop) override;
  Result<> register_memory(std::span<std::byte>) override { return {}; }  // nothing to gain
  void forget_memory(std::span<const std::byte>) override {}
  Task<> drain() override { return operations_.drain(); }
  RingStats stats() const override;
  std::string description() const override { return description_; }

 private:
  void start(std::unique_ptr<Operation> operation) override;
  void give_up(Operation& operation) override;
  void work(uint32_t index);
  std::unique_ptr<Operation> take(bool reads_only);  // waits; null: the ring is ending
  IntrusiveList<Operation>& queue_of(Operation::Kind kind) {
    return kind == Operation::Kind::kRead ? reads_ : others_;
  }

  Operations operations_;
  std::string description_;

  mutable std::mutex mutex_;
  std::condition_variable added_;
  IntrusiveList<Operation> reads_;  // all below under mutex_; owns its elements
  IntrusiveList<Operation> others_;
  uint32_t queued_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace spillway::io
