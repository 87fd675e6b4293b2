// A stream whose operators run on the emulator: link spillway_cuda_emulated for those that
// kernels/cuda/operators.h declares, and give them one of these. Each runs in the calling thread
// and has ended when it returns.
#pragma once

#include <cstdint>
#include <cstdio>

#include "tests/emulator/launch.h"

// One thread at a time.
struct CUstream_st {
  static constexpr int kLaunchFailure = 719;  // as cudaErrorLaunchFailure

  spillway::emulator::Launcher launch;
  uint64_t calls = 0;              // of operators
  uint64_t fails_at = UINT64_MAX;  // the call, from 0, that does nothing and fails
};

namespace spillway::kernels::cuda {

// Calls `enqueue` with the stream's launcher. An operator also fails whose kernels have defects,
// which stderr then names.
template <class Enqueue>
int emulate_on(CUstream_st* stream, const Enqueue& enqueue) {
  if (stream->calls++ == stream->fails_at) return CUstream_st::kLaunchFailure;
  if (!stream->launch.defects().empty()) return CUstream_st::kLaunchFailure;  // as sticky ones are
  enqueue(stream->launch);
  if (stream->launch.defects().empty()) return 0;
  std::fputs(stream->launch.text().c_str(), stderr);
  return CUstream_st::kLaunchFailure;
}

}  // namespace spillway::kernels::cuda
