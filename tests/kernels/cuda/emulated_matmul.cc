// Matrix products, on the emulator.
#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/matmul_floats.cuh"
#include "kernels/cuda/unpack.cuh"
#include "tests/kernels/cuda/emulated_stream.h"

namespace spillway::kernels::cuda {

int quantize(CUstream_st* stream, const QuantizeArgs& args) {
  return emulate_on(stream, [&](auto& launch) { quantize(launch, args); });
}
int matmul(CUstream_st* stream, const MatmulArgs& args) {
  return emulate_on(stream, [&](auto& launch) { matmul(launch, args); });
}
int matmul_by(CUstream_st* stream, const MatmulByArgs& args) {
  return emulate_on(stream, [&](auto& launch) { matmul_by(launch, args); });
}
int matmul_floats(CUstream_st* stream, const MatmulFloatsArgs& args) {
  return emulate_on(stream, [&](auto& launch) { matmul_floats(launch, args); });
}
int unpack(CUstream_st* stream, const UnpackArgs& args) {
  return emulate_on(stream, [&](auto& launch) { unpack(launch, args); });
}
int narrow(CUstream_st* stream, const NarrowArgs& args) {
  return emulate_on(stream, [&](auto& launch) { narrow(launch, args); });
}

}  // namespace spillway::kernels::cuda
