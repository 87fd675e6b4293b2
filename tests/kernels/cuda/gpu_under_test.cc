#include "tests/kernels/cuda/gpu_under_test.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstring>

namespace spillway::kernels::cuda {
namespace {

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

Range stack_of_this_thread() {
  pthread_attr_t attributes;
  void* begin = nullptr;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  pthread_attr_getstack(&attributes, &begin, &bytes);
  pthread_attr_destroy(&attributes);
  return {reinterpret_cast<uintptr_t>(begin), reinterpret_cast<uintptr_t>(begin) + bytes};
}

}  // namespace

std::string GpuUnderTest::text() {
  return "SPILLWAY_EMULATOR_SEED=" + std::to_string(seed()) + "\n";
}

// Of a kernel with defects the emulator has told stderr.
void GpuUnderTest::expect_done(int error) {
  const int waited = stream_.finish();
  EXPECT_EQ(error != 0 ? error : waited, 0) << text();
}

void GpuUnderTest::expect_reachable(const void* args, size_t bytes) {
  static const Range stack = stack_of_this_thread();
  for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
    uintptr_t word = 0;
    std::memcpy(&word, static_cast<const char*>(args) + at, sizeof word);
    EXPECT_FALSE(word >= stack.begin && word < stack.end)
        << "byte " << at << " of the arguments begins a pointer to the stack";
  }
}

}  // namespace spillway::kernels::cuda
