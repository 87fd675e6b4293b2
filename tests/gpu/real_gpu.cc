// The GPU under test, a real one: operators on a stream of its own, awaited one by one.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "kernels/cuda/runtime_api.h"
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

struct GpuUnderTest::Parts {
  cudaStream_t stream = nullptr;
};

GpuUnderTest::GpuUnderTest() : parts_(std::make_unique<Parts>()) {
  expect_done(cudaStreamCreateWithFlags(&parts_->stream, cudaStreamNonBlocking));
}
GpuUnderTest::~GpuUnderTest() {
  if (parts_->stream != nullptr) cudaStreamDestroy(parts_->stream);
}

CUstream_st* GpuUnderTest::stream() { return parts_->stream; }
uint64_t GpuUnderTest::seed() const { return seed_of_process(); }
std::string GpuUnderTest::text() const {
  return "SPILLWAY_EMULATOR_SEED=" + std::to_string(seed()) + "\n";
}

void GpuUnderTest::expect_done(int error) {
  auto is = static_cast<cudaError_t>(error);
  if (is == cudaSuccess && parts_->stream != nullptr) is = cudaStreamSynchronize(parts_->stream);
  EXPECT_EQ(is, cudaSuccess) << cudaGetErrorName(is) << ": " << cudaGetErrorString(is) << "\n"
                             << text();
}

}  // namespace spillway::kernels::cuda
