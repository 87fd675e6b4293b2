// What of the GPU under test is the emulator's: the seed.
#include "tests/emulator/launch.h"
#include "tests/kernels/cuda/gpu_under_test.h"

namespace spillway::kernels::cuda {

uint64_t GpuUnderTest::seed() { return emulator::Launcher().seed(); }

}  // namespace spillway::kernels::cuda
