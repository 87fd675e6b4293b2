#include "io/uring_parker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "runtime/check.h"

namespace spillway::io {
namespace {

constexpr uint64_t kWakeTag = 1;

// Best first. DEFER_TASKRUN (Linux 6.1) runs completions inside our own io_uring_enter and nowhere
// else; COOP_TASKRUN (5.19) at least does not interrupt the thread; 0 is what any kernel takes.
// TASKRUN_FLAG tells poll() that there are some to run.
constexpr std::array<uint32_t, 3> kFlagChoices = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 0};

// What a call that enters the ring may answer. EAGAIN and EBUSY: the kernel is short of memory or
// of room for completions; what is there is handled, and the loop comes again.
bool expected(int answer) {
  return answer >= 0 || answer == -ETIME || answer == -EINTR || answer == -EAGAIN ||
         answer == -EBUSY;
}

// A ring is made disabled and enabled by the thread that uses it: a single-issuer ring belongs to
// that one. (liburing 2.3 declares io_uring_enable_rings() and does not export it.)
int enable(io_uring& ring) {
  return io_uring_register(ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
}

Error refused(const char* call, int error_number) {
  return {ErrorCode::kUnavailable,
          std::string(call) + " was refused: " + std::strerror(error_number)};
}

// A ring on this thread that does one poll for real: a filter may let one call through and not the
// next, and an old kernel may know io_uring but not what we need of it.
Result<> try_out(uint32_t flags) {
  io_uring ring{};
  const int made = io_uring_queue_init(4, &ring, flags | IORING_SETUP_R_DISABLED);
  if (made < 0) return refused("io_uring_setup", -made);
  struct Closer {
    io_uring* ring;
    ~Closer() { io_uring_queue_exit(ring); }
  } const closer{&ring};
  if ((ring.features & IORING_FEAT_EXT_ARG) == 0) {
    return Error{ErrorCode::kUnavailable, "io_uring here cannot wait with a timeout (Linux 5.11)"};
  }
  if (const int enabled = enable(ring); enabled < 0) return refused("io_uring_register", -enabled);
  const int fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) return refused("eventfd", errno);
  io_uring_sqe* entry = io_uring_get_sqe(&ring);
  CHECK(entry != nullptr);
  io_uring_prep_poll_multishot(entry, fd, POLLIN);
  __kernel_timespec limit{.tv_sec = 1, .tv_nsec = 0};
  io_uring_cqe* completion = nullptr;
  const int waited = io_uring_submit_and_wait_timeout(&ring, &completion, 1, &limit, nullptr);
  close(fd);
  if (waited < 0) return refused("io_uring_enter", -waited);
  if (completion == nullptr || completion->res < 0 ||
      (completion->flags & IORING_CQE_F_MORE) == 0) {
    return Error{ErrorCode::kUnavailable, "io_uring here has no multishot poll (Linux 5.13)"};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<UringParker>> UringParker::create(const Options& options) {
  Error first{ErrorCode::kUnavailable, ""};
  for (const uint32_t flags : kFlagChoices) {
    if (const Result<> tried = try_out(flags); !tried) {
      if (first.message.empty()) first = tried.error();
      continue;
    }
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return refused("eventfd", errno);
    std::unique_ptr<UringParker> parker(new UringParker(fd, flags));
    const int made =
        io_uring_queue_init(options.entries, &parker->ring_, flags | IORING_SETUP_R_DISABLED);
    if (made < 0) {
      parker->ring_.ring_fd = -1;
      return refused("io_uring_setup", -made);
    }
    return parker;
  }
  return first;
}

UringParker::~UringParker() {
  CHECK(client_ == nullptr);
  // The armed poll names no memory of ours: the kernel drops it with the ring.
  if (ring_.ring_fd >= 0) io_uring_queue_exit(&ring_);
  close(wake_fd_);
}

void UringParker::set_client(UringClient* client) {
  CHECK(client == nullptr || client_ == nullptr);
  client_ = client;
}

io_uring_sqe* UringParker::entry() {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr && enabled_) {
    submit();
    entry = io_uring_get_sqe(&ring_);
  }
  return entry;
}

void UringParker::prepare() {
  if (!enabled_) {
    const int enabled = enable(ring_);
    CHECK(enabled == 0);
    enabled_ = true;
  }
  if (!watching_) watch_wake_fd();
  if (client_ != nullptr) client_->fill();
}

void UringParker::watch_wake_fd() {
  io_uring_sqe* watch = entry();
  if (watch == nullptr) return;  // the next turn comes again
  io_uring_prep_poll_multishot(watch, wake_fd_, POLLIN);
  io_uring_sqe_set_data64(watch, kWakeTag);
  watching_ = true;
}

void UringParker::submit() {
  const int submitted = io_uring_submit(&ring_);
  CHECK(expected(submitted));
}

void UringParker::park(std::optional<std::chrono::nanoseconds> timeout) {
  prepare();
  __kernel_timespec limit{};
  if (timeout) {
    const int64_t ns = std::max<int64_t>(timeout->count(), 0);
    limit = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  }
  // A full queue kept the watch out: nothing but the kernel would end a long sleep.
  if (!watching_) limit = {.tv_sec = 0, .tv_nsec = 1'000'000};
  const bool limited = timeout.has_value() || !watching_;
  io_uring_cqe* completion = nullptr;
  const int waited =
      io_uring_submit_and_wait_timeout(&ring_, &completion, 1, limited ? &limit : nullptr, nullptr);
  CHECK(expected(waited));
  handle_completions();
}

void UringParker::poll() {
  prepare();
  const uint32_t waiting = IO_URING_READ_ONCE(*ring_.sq.kflags);
  if (io_uring_sq_ready(&ring_) > 0) {
    const int submitted = io_uring_submit_and_get_events(&ring_);
    CHECK(expected(submitted));
  } else if ((waiting & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) {
    const int got = io_uring_get_events(&ring_);
    CHECK(expected(got));
  }
  handle_completions();
}

void UringParker::handle_completions() {
  unsigned head = 0;
  unsigned count = 0;
  bool woken = false;
  io_uring_cqe* completion = nullptr;
  io_uring_for_each_cqe(&ring_, head, completion) {
    ++count;
    const uint64_t user_data = io_uring_cqe_get_data64(completion);
    if (user_data == kWakeTag) {
      woken = true;
      if ((completion->flags & IORING_CQE_F_MORE) == 0) watching_ = false;
    } else {
      CHECK(client_ != nullptr);
      client_->on_completion(user_data, completion->res);
    }
  }
  io_uring_cq_advance(&ring_, count);
  if (woken) take_wakes();
}

// A poll that must be armed again would else fire for a wake that has been handled.
void UringParker::take_wakes() {
  uint64_t wakes;
  const ssize_t got = read(wake_fd_, &wakes, sizeof wakes);
  CHECK(got == sizeof wakes || errno == EAGAIN);
}

void UringParker::wake() {
  const uint64_t one = 1;
  const ssize_t put = write(wake_fd_, &one, sizeof one);
  CHECK(put == sizeof one);
}

}  // namespace spillway::io
