// What of the GPU under test is a real one's: a seed of its own.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "tests/kernels/cuda/gpu_under_test.h"

namespace spillway::kernels::cuda {
namespace {

uint64_t seed_of_process() {
  static const uint64_t seed = [] {
    const char* const text = std::getenv("SPILLWAY_EMULATOR_SEED");
    const uint64_t value =
        text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
    std::fprintf(stderr, "SPILLWAY_EMULATOR_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

}  // namespace

uint64_t GpuUnderTest::seed() { return seed_of_process(); }

}  // namespace spillway::kernels::cuda
