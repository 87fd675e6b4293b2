// The GPU that the tests of kernels run on. The same tests make two programs: one whose operators
// run on the emulator (emulated_gpu.cc), and one for a machine with a GPU (real_gpu.cc), which
// tools/gpu-check runs there.
//
// What a test gives an operator is memory that it allocated (vectors, new), never what lies on its
// stack or in a mapping: a real GPU reaches the former alone, since its program's operator new
// gives memory that both sides reach at one address (managed_memory.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "tests/kernels/cuda/stream_at_once.h"

namespace spillway::kernels::cuda {

// One thread at a time.
class GpuUnderTest {
 public:
  // Enqueues an operator and waits until it has run. What goes wrong is a failed expectation.
  template <class Args>
  void run(int (*enqueue)(CUstream_st*, const Args&), const std::type_identity_t<Args>& args) {
    expect_reachable(&args, sizeof(Args));
    expect_done(enqueue(stream_.get(), args));
  }

  // Of the process, for what a test draws; it was printed, and can be set (SPILLWAY_EMULATOR_SEED).
  static uint64_t seed();
  static std::string text();  // how to repeat what failed

 private:
  void expect_done(int error);  // after what was enqueued with this result
  // No pointer among an operator's arguments names the stack.
  static void expect_reachable(const void* args, size_t bytes);

  StreamAtOnce stream_;
};

}  // namespace spillway::kernels::cuda
