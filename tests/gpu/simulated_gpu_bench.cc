// gpu_bench on the simulated runtime, its kernels on the emulator: all of it but the GPU, for
// tests. Its figures mean nothing; give it --tiny.
#include "bench/gpu/gpu_bench.h"
#include "tests/emulator/simulated_cuda.h"

int main(int argc, char** argv) {
  const spillway::emulator::SimulatedCuda cuda(
      {.threads = true, .device_bytes = size_t{1} << 30, .pinned_bytes = size_t{1} << 30});
  return spillway::bench::gpu_bench_main(argc, argv);
}
