// Matrix products, for a GPU.
#include "kernels/cuda/every_matmul_kernel.cuh"
#include "kernels/cuda/gpu_launcher.cuh"
#include "kernels/cuda/loading.h"

namespace spillway::kernels::cuda {

int quantize(CUstream_st* stream, const QuantizeArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { quantize(launch, args); });
}
int matmul(CUstream_st* stream, const MatmulArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { matmul(launch, args); });
}
int matmul_by(CUstream_st* stream, const MatmulByArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { matmul_by(launch, args); });
}
int matmul_floats(CUstream_st* stream, const MatmulFloatsArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { matmul_floats(launch, args); });
}
int unpack(CUstream_st* stream, const UnpackArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { unpack(launch, args); });
}
int narrow(CUstream_st* stream, const NarrowArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { narrow(launch, args); });
}

int load_matmul_kernels() {
  return load_all([](auto& launch) { every_matmul_kernel(launch); });
}

}  // namespace spillway::kernels::cuda
