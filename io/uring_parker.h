// The engine's io_uring, as a Parker: its loop sleeps in the very ring whose completions it
// handles, so that nothing stands between a completion and its coroutine. It also watches an
// eventfd, by which other threads wake it.
//
// Entries that a turn of the loop puts into the submission queue are given to the kernel together,
// by the park() or poll() that follows.
//
// Threads: created on any; used by the one that parks or polls first. wake() from any.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>

#include "runtime/parker.h"
#include "runtime/result.h"

namespace spillway::io {

// Who puts entries into the ring, and is told how they ended.
class UringClient {
 public:
  // Before a submission: a chance to put in what there was no room for.
  virtual void fill() = 0;
  // For each completion whose user_data is not the parker's own.
  virtual void on_completion(uint64_t user_data, int32_t result) = 0;

 protected:
  ~UringClient() = default;
};

class UringParker final : public Parker {
 public:
  struct Options {
    uint32_t entries = 256;  // of the submission queue; completions: twice as many
  };
  // kUnavailable where io_uring is refused or lacks what is needed (Linux 5.13): the message says
  // which call failed and why.
  static Result<std::unique_ptr<UringParker>> create(const Options& options);
  static Result<std::unique_ptr<UringParker>> create() { return create(Options{}); }
  ~UringParker() override;  // on any thread, after the last park(); nothing is in flight
  UringParker(const UringParker&) = delete;
  UringParker& operator=(const UringParker&) = delete;

  void park(std::optional<std::chrono::nanoseconds> timeout) override;
  void poll() override;
  void wake() override;
  std::string description() const override { return "io_uring"; }

  // At most one client at a time; null: none. It must be unset before it dies.
  void set_client(UringClient* client);
  // An empty entry of the submission queue, which the next park() or poll() submits. Null: the
  // queue is full and the kernel takes nothing now; try again in fill().
  // `user_data` of any entry: with the lowest bit clear.
  io_uring_sqe* entry();
  // For registrations: before the first park() from any thread, then from the loop's.
  io_uring& ring() { return ring_; }

  // The flags of io_uring_setup that this kernel took, for the log.
  uint32_t setup_flags() const { return flags_; }

 private:
  UringParker(int wake_fd, uint32_t flags) : wake_fd_(wake_fd), flags_(flags) {}
  void prepare();
  void watch_wake_fd();
  void submit();
  void handle_completions();
  void take_wakes();

  io_uring ring_{};
  UringClient* client_ = nullptr;
  int wake_fd_;
  uint32_t flags_;
  bool enabled_ = false;   // the ring belongs to a thread
  bool watching_ = false;  // the poll on wake_fd_ is armed
};

}  // namespace spillway::io
