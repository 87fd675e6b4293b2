#include "runtime/eventfd_parker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "runtime/check.h"

namespace spillway {

EventfdParker::EventfdParker() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { CHECK(fd_ >= 0); }

EventfdParker::~EventfdParker() { close(fd_); }

void EventfdParker::park(std::optional<std::chrono::nanoseconds> timeout) {
  timespec limit{};
  if (timeout) {
    const int64_t ns = std::max<int64_t>(timeout->count(), 0);
    limit = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  }
  pollfd watched{.fd = fd_, .events = POLLIN, .revents = 0};
  const int ready = ppoll(&watched, 1, timeout ? &limit : nullptr, nullptr);
  CHECK(ready >= 0 || errno == EINTR);
  if (ready <= 0) return;
  uint64_t wakes;
  const ssize_t got = read(fd_, &wakes, sizeof wakes);
  CHECK(got == sizeof wakes);
}

void EventfdParker::wake() {
  const uint64_t one = 1;
  const ssize_t put = write(fd_, &one, sizeof one);
  CHECK(put == sizeof one);
}

}  // namespace spillway
