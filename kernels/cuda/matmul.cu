// Matrix products with quantised weights, for a GPU.
#include "kernels/cuda/matmul.cuh"

#include "kernels/cuda/gpu_launcher.cuh"

namespace spillway::kernels::cuda {

int quantize(CUstream_st* stream, const QuantizeArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { quantize(launch, args); });
}
int matmul(CUstream_st* stream, const MatmulArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { matmul(launch, args); });
}

}  // namespace spillway::kernels::cuda
