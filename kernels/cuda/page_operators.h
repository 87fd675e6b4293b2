// Operators on whole pages of KV and on runs of their bytes: what each takes, and how to enqueue
// it. The tiers do not use them yet: they copy page by page and take checksums on the host. Plain
// types, and what operators.h says of all operators holds here too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/paged_kv.h"

struct CUstream_st;

namespace spillway::kernels::cuda {

// Pages that lie anywhere in their pool, and one block in which they lie in the list's order.
// Twin: a memcpy a page.
struct PageCopyArgs {
  std::byte* pool = nullptr;        // page p at pool + p * page_bytes; 16-byte aligned
  const PageId* pages = nullptr;    // (count), in device memory: no page twice, none kNoPage
  uint32_t count = 0;               // at most 65,535
  size_t page_bytes = 0;            // a multiple of kPageAlignment
  std::byte* contiguous = nullptr;  // (count, page_bytes), 16-byte aligned; not in the pool
};

// Bytes to take a checksum of: a band of a page.
struct DeviceBytes {
  const std::byte* data = nullptr;  // 16-byte aligned
  uint64_t bytes = 0;               // a multiple of 64, at least 256
  uint64_t seed = 0;
};

// Twin: XXH3_64bits_withSeed() of xxHash; without a seed, that of seed 0.
struct ChecksumArgs {
  const DeviceBytes* parts = nullptr;  // (count), in device memory
  uint32_t count = 0;
  uint64_t* sums = nullptr;  // (count)
};

// Pages of 16-bit numbers and the same cut in two planes of bytes. Twin: byte_planes.h.
struct PlanesArgs {
  std::byte* pages = nullptr;   // (count, page_bytes), 16-byte aligned
  std::byte* planes = nullptr;  // (count, {upper, lower}, page_bytes / 2), 16-byte aligned
  uint32_t count = 0;           // at most 65,535
  size_t page_bytes = 0;        // a multiple of 32
};

int gather_pages(CUstream_st* stream, const PageCopyArgs& args);
int scatter_pages(CUstream_st* stream, const PageCopyArgs& args);
int checksum(CUstream_st* stream, const ChecksumArgs& args);
int split_planes(CUstream_st* stream, const PlanesArgs& args);
int join_planes(CUstream_st* stream, const PlanesArgs& args);

}  // namespace spillway::kernels::cuda
