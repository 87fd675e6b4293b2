// Pages from anywhere in the pool into one block, and back: with it a swap of many pages can be one
// copy over the bus.
//
// Sketch, H200: a page of 2 MiB (8B model, 16 tokens, f16) is read and written once, 4 MB at
// 4.8 TB/s: 0.9 us; 64 pages 56 us, while the bus needs 2.1 ms for them at 64 GB/s: gathering adds
// 3% where it does not overlap. What it saves is a copy's start of about 2 us a page: nothing for
// pages of 2 MiB (33 us on the bus each), half the time for those of 128 KiB. A block moves 16 KiB,
// 4 vectors of 16 bytes under way in each thread; 8 blocks an SM are 128 KB under way.
#pragma once

#include "kernels/cuda/page_operators.h"
#include "kernels/cuda/platform.cuh"

namespace spillway::kernels::cuda {

struct alignas(16) Words4 {
  uint32_t word[4];
};

inline constexpr uint32_t kPageCopyThreads = 256;
inline constexpr uint32_t kPageCopyVectors = 4;  // a thread

template <bool kGather>
SPILLWAY_KERNEL void SPILLWAY_THREADS(kPageCopyThreads) page_copy_kernel(PageCopyArgs args) {
  const auto page = static_cast<uint32_t>(args.pages[block_index().y]);
  auto* const scattered = reinterpret_cast<Words4*>(args.pool + page * args.page_bytes);
  auto* const together =
      reinterpret_cast<Words4*>(args.contiguous + block_index().y * args.page_bytes);
  const Words4* const from = kGather ? scattered : together;
  Words4* const to = kGather ? together : scattered;
  const size_t vectors = args.page_bytes / sizeof(Words4);
  const size_t first =
      size_t{block_index().x} * kPageCopyThreads * kPageCopyVectors + thread_index();
  Words4 held[kPageCopyVectors];
  SPILLWAY_UNROLL
  for (uint32_t i = 0; i < kPageCopyVectors; ++i) {
    const size_t at = first + i * kPageCopyThreads;
    if (at < vectors) held[i] = from[at];
  }
  SPILLWAY_UNROLL
  for (uint32_t i = 0; i < kPageCopyVectors; ++i) {
    const size_t at = first + i * kPageCopyThreads;
    if (at < vectors) to[at] = held[i];
  }
}

inline LaunchShape page_copy_shape(const PageCopyArgs& args) {
  constexpr size_t kBytes = sizeof(Words4) * kPageCopyVectors * kPageCopyThreads;
  return {.grid = {static_cast<uint32_t>((args.page_bytes + kBytes - 1) / kBytes), args.count, 1},
          .threads = kPageCopyThreads};
}

template <class Launcher>
auto gather_pages(Launcher& launch, const PageCopyArgs& args) {
  return launch(page_copy_kernel<true>, page_copy_shape(args), args);
}

template <class Launcher>
auto scatter_pages(Launcher& launch, const PageCopyArgs& args) {
  return launch(page_copy_kernel<false>, page_copy_shape(args), args);
}

}  // namespace spillway::kernels::cuda
