// Which of the twins runs: `spillway` waits by io_uring; where that is refused (Docker's default
// seccomp profile, old kernels, qemu) it executes `spillway-epoll`, the same program on epoll
// (case S15).
#pragma once

#include <string_view>

#include "runtime/result.h"

namespace spillway::server {

std::string_view network_name();  // of this binary: "io_uring" or "epoll"
// Returns if this binary's network works here. Else executes its twin, found beside it, with the
// same arguments, and returns only if that fails.
Result<> ensure_network(char** argv);

}  // namespace spillway::server
