// The operators on what ranks sent each other, for a GPU.
#include "kernels/cuda/gpu_launcher.cuh"
#include "kernels/cuda/loading.h"
#include "kernels/cuda/sum_parts.cuh"

namespace spillway::kernels::cuda {

int sum_parts(CUstream_st* stream, const SumPartsArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { sum_parts(launch, args); });
}

int load_rank_kernels() {
  return load_all([](auto& launch) { sum_parts(launch, SumPartsArgs{}); });
}

}  // namespace spillway::kernels::cuda
