// Every kernel of the operators on whole pages: the operators choose all of
// theirs, one after the other. What they are given besides is nothing, so `launch` must not run
// them (loading.h).
#pragma once

#include "kernels/cuda/byte_planes.cuh"
#include "kernels/cuda/checksum.cuh"
#include "kernels/cuda/page_copy.cuh"

namespace spillway::kernels::cuda {

template <class Launcher>
void every_page_kernel(Launcher& launch) {
  gather_pages(launch, PageCopyArgs{});
  scatter_pages(launch, PageCopyArgs{});
  checksum(launch, ChecksumArgs{});
  split_planes(launch, PlanesArgs{});
  join_planes(launch, PlanesArgs{});
}

}  // namespace spillway::kernels::cuda
