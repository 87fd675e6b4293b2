// The benchmarks of a GPU as one call, for the program on a real one and for that on the simulated.
#pragma once

#include <string>
#include <vector>

#include "bench/gpu/bench_run.h"
#include "runtime/result.h"

namespace spillway::bench {

struct GpuBenchOptions {
  std::string folder;  // for files while it runs: on the NVMe disk to measure
  std::string out;     // the file for what was measured
  std::string only;    // a case's name; empty: all
  bool tiny = false;   // sizes for a simulated GPU: the figures mean nothing
};

// The error names the argument.
Result<GpuBenchOptions> parse_gpu_bench_options(const std::vector<std::string>& arguments);

// Measures every case on the first GPU and writes the file, also where one fails. A case that this
// GPU has no room for is written down as skipped; a GPU that fails is an error, and so is none at
// all: kUnavailable.
Result<> run_gpu_bench(const GpuBenchOptions& options);

// The program: its exit code, 77 where there is no GPU.
int gpu_bench_main(int argc, char** argv);

}  // namespace spillway::bench
