// The product's own program on a simulated GPU: server/main.cc and all that it stands on, but for
// CUDA's runtime and the operators, which are the emulator's. So `serve --device cuda` is run whole
// where there is no GPU.
//
// SPILLWAY_TEST_GPU_BYTES: the GPU's memory.
#include <cstdlib>

#include "tests/emulator/simulated_cuda.h"

int spillway_main(int argc, char** argv);  // server/main.cc's

int main(int argc, char** argv) {
  spillway::emulator::SimulatedCudaOptions options{.threads = true,
                                                   .pinned_bytes = size_t{1} << 30};
  if (const char* bytes = std::getenv("SPILLWAY_TEST_GPU_BYTES")) {
    options.device_bytes = std::strtoull(bytes, nullptr, 10);
  }
  // What CUDA would have let pass ends the process at its end, and fails the test.
  const spillway::emulator::SimulatedCuda cuda(options);
  return spillway_main(argc, argv);
}
