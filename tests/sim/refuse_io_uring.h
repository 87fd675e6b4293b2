// Makes this process live without io_uring, as under Docker's default seccomp profile: the calls
// fail with an errno of our choice, for this thread and all that it starts from now on, for good.
// Call it in a forked child.
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::sim {

inline const std::vector<uint32_t> kIoUringCalls = {SYS_io_uring_setup, SYS_io_uring_enter,
                                                    SYS_io_uring_register};

// False where the system refuses the filter.
inline bool refuse_calls(const std::vector<uint32_t>& calls, uint32_t error_number) {
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const uint32_t call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error_number));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{.len = static_cast<uint16_t>(program.size()), .filter = program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace spillway::sim
