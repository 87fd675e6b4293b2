// The GPU under test, on the emulator.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/emulated_stream.h"
#include "tests/kernels/cuda/gpu_under_test.h"

namespace spillway::kernels::cuda {

struct GpuUnderTest::Parts {
  StreamAtOnce stream;
};

GpuUnderTest::GpuUnderTest() : parts_(std::make_unique<Parts>()) {}
GpuUnderTest::~GpuUnderTest() = default;

CUstream_st* GpuUnderTest::stream() { return parts_->stream.get(); }
uint64_t GpuUnderTest::seed() const { return emulator::Launcher().seed(); }
std::string GpuUnderTest::text() const { return emulator::Launcher().text(); }
// Of a kernel with defects stderr has been told.
void GpuUnderTest::expect_done(int error) { EXPECT_EQ(error, 0) << text(); }

}  // namespace spillway::kernels::cuda
