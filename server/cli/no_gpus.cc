#include "server/cli/gpus.h"

namespace spillway::server {
namespace {

Error no_cuda() {
  return {
      ErrorCode::kUnavailable,
      "this spillway was built without CUDA; build it where the CUDA Toolkit (12.8 or later) is "
      "found, which the line 'CUDA: ...' of cmake tells"};
}

}  // namespace

std::string gpu_support() { return "no CUDA"; }

Result<std::vector<kernels::GpuInfo>> find_gpus() { return no_cuda(); }

Result<kernels::GpuMemory> gpu_memory(int) { return no_cuda(); }

Result<LoadedRunner> load_on_gpu(const model::GgufFile&, const ModelOptions&, int) {
  return no_cuda();
}

}  // namespace spillway::server
