// The GPUs that this program can use. Of two sources one is linked: cuda_gpus.cc, which knows CUDA,
// and no_gpus.cc for where the build had no CUDA Toolkit.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/gpus.h"
#include "model/gguf.h"
#include "runtime/result.h"
#include "server/cli/load_runner.h"
#include "server/cli/options.h"

namespace spillway::server {

// What the build brings: "CUDA 13.0", or "no CUDA".
std::string gpu_support();

// As kernels::find_gpus(); an error also where the build has no CUDA.
Result<std::vector<kernels::GpuInfo>> find_gpus();

// Makes a context on it. REQUIRES: find_gpus() has told of it.
Result<kernels::GpuMemory> gpu_memory(int index);

// Loads the model onto a GPU, and has it run the largest step that the options allow. REQUIRES:
// find_gpus() has told of it.
Result<LoadedRunner> load_on_gpu(const model::GgufFile& file, const ModelOptions& options,
                                 int index);

}  // namespace spillway::server
