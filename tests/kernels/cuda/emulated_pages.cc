// The operators on whole pages, on the emulator.
#include "kernels/cuda/byte_planes.cuh"
#include "kernels/cuda/checksum.cuh"
#include "kernels/cuda/page_copy.cuh"
#include "tests/kernels/cuda/emulated_stream.h"

namespace spillway::kernels::cuda {

int gather_pages(CUstream_st* stream, const PageCopyArgs& args) {
  return emulate_on(stream, [&](auto& launch) { gather_pages(launch, args); });
}
int scatter_pages(CUstream_st* stream, const PageCopyArgs& args) {
  return emulate_on(stream, [&](auto& launch) { scatter_pages(launch, args); });
}
int checksum(CUstream_st* stream, const ChecksumArgs& args) {
  return emulate_on(stream, [&](auto& launch) { checksum(launch, args); });
}
int split_planes(CUstream_st* stream, const PlanesArgs& args) {
  return emulate_on(stream, [&](auto& launch) { split_planes(launch, args); });
}
int join_planes(CUstream_st* stream, const PlanesArgs& args) {
  return emulate_on(stream, [&](auto& launch) { join_planes(launch, args); });
}

}  // namespace spillway::kernels::cuda
