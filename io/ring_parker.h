// A Parker that waits in io_uring_enter: the engine's loop sleeps in the very ring whose
// completions it handles. The ring watches an eventfd, by which other threads wake it.
//
// Threads: created on any; used by the one that parks first. wake() from any.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>

#include "runtime/parker.h"
#include "runtime/result.h"

namespace spillway::io {

class RingParker final : public Parker {
 public:
  // kUnavailable where io_uring is refused or lacks what is needed (Linux 5.13): the message says
  // which call failed and why.
  static Result<std::unique_ptr<RingParker>> create();
  ~RingParker() override;  // on any thread, after the last park()
  RingParker(const RingParker&) = delete;
  RingParker& operator=(const RingParker&) = delete;

  void park(std::optional<std::chrono::nanoseconds> timeout) override;
  void wake() override;
  std::string description() const override { return "io_uring"; }

  // The flags of io_uring_setup that this kernel took, for the log.
  uint32_t setup_flags() const { return flags_; }

 private:
  RingParker(int wake_fd, uint32_t flags) : wake_fd_(wake_fd), flags_(flags) {}
  void watch_wake_fd();
  void handle_completions();

  io_uring ring_{};
  int wake_fd_;
  uint32_t flags_;
  bool enabled_ = false;   // the ring belongs to a thread
  bool watching_ = false;  // the poll on wake_fd_ is armed
};

}  // namespace spillway::io
