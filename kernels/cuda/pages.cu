// The operators on whole pages, for a GPU.
#include "kernels/cuda/every_page_kernel.cuh"
#include "kernels/cuda/gpu_launcher.cuh"
#include "kernels/cuda/loading.h"
#include "kernels/cuda/page_operators.h"

namespace spillway::kernels::cuda {

int gather_pages(CUstream_st* stream, const PageCopyArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { gather_pages(launch, args); });
}
int scatter_pages(CUstream_st* stream, const PageCopyArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { scatter_pages(launch, args); });
}
int checksum(CUstream_st* stream, const ChecksumArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { checksum(launch, args); });
}
int split_planes(CUstream_st* stream, const PlanesArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { split_planes(launch, args); });
}
int join_planes(CUstream_st* stream, const PlanesArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { join_planes(launch, args); });
}

int load_page_kernels() {
  return load_all([](auto& launch) { every_page_kernel(launch); });
}

}  // namespace spillway::kernels::cuda
