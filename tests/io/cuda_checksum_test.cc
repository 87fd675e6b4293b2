// Checksums on a GPU: those of the xxHash library, and of the store's bands.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <random>
#include <vector>

#include "io/page_bands.h"
#include "io/page_index.h"
#include "kernels/cuda/page_operators.h"
#include "tests/kernels/cuda/aligned_bytes.h"
#include "tests/kernels/cuda/gpu_under_test.h"

namespace spillway::io {
namespace {

using kernels::cuda::AlignedBytes;
using kernels::cuda::checksum;
using kernels::cuda::DeviceBytes;
using kernels::cuda::GpuUnderTest;

// At the edges of stripes, of blocks of 1 KiB, of tiles of 32 blocks, and at sizes of bands.
TEST(CudaChecksumTest, checksums_are_those_of_the_library) {
  std::vector<size_t> sizes;
  for (size_t bytes = 256; bytes <= 2304; bytes += 64) sizes.push_back(bytes);
  for (const size_t around : {31u, 32u, 33u, 63u, 64u, 65u, 96u}) {
    for (const size_t bytes : {around * 1024 - 64, around * 1024, around * 1024 + 64}) {
      sizes.push_back(bytes);
    }
  }
  for (const size_t units : {1u, 2u, 3u, 7u, 8u, 9u, 40u, 129u}) sizes.push_back(units * 4096);
  std::vector<AlignedBytes> copies;  // each ends with its part
  std::vector<DeviceBytes> parts;
  std::vector<uint64_t> expected;
  copies.reserve(sizes.size());
  GpuUnderTest gpu;
  std::mt19937_64 random(gpu.seed());
  for (const size_t bytes : sizes) {
    copies.emplace_back(bytes, static_cast<uint32_t>(bytes));
    for (const uint64_t seed : {uint64_t{0}, random(), ~uint64_t{0}}) {
      parts.push_back({copies.back().data(), bytes, seed});
      expected.push_back(XXH3_64bits_withSeed(copies.back().data(), bytes, seed));
    }
    if (bytes == 4096) {
      EXPECT_EQ(expected[expected.size() - 3], XXH3_64bits(copies.back().data(), bytes));
    }
  }
  std::vector<uint64_t> sums(parts.size() + 1, 99);
  gpu.run(checksum, {.parts = parts.data(), .count = 0, .sums = sums.data()});
  EXPECT_EQ(sums[0], 99u);
  gpu.run(
      checksum,
      {.parts = parts.data(), .count = static_cast<uint32_t>(parts.size()), .sums = sums.data()});
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(sums[i], expected[i]) << parts[i].bytes << " bytes, seed " << parts[i].seed;
  }
  EXPECT_EQ(sums.back(), 99u);
}

TEST(CudaChecksumTest, bands_of_a_page_have_the_stores_checksums) {
  GpuUnderTest gpu;
  std::mt19937_64 random(gpu.seed());
  for (const uint32_t units : {1u, 3u, 8u, 9u, 25u}) {
    for (uint32_t bands = 1; bands <= units && bands <= kPageBandsMax; ++bands) {
      const uint32_t bytes = 4096 * units;
      const AlignedBytes page(bytes, units);
      BandSums expected;
      std::vector<DeviceBytes> parts;
      for (uint32_t band = 0; band < bands; ++band) {
        const ByteRange range = bytes_of_bands(bytes, bands, band, band + 1);
        expected.bands.push_back({random(), range.end - range.begin});
        parts.push_back({.data = page.data() + range.begin,
                         .bytes = range.end - range.begin,
                         .seed = expected.bands.back().seed});
      }
      std::vector<uint64_t> sums(bands);
      gpu.run(checksum, {.parts = parts.data(), .count = bands, .sums = sums.data()});
      EXPECT_EQ(sums, expected.checksums({page.data(), bytes})) << gpu.text();
    }
  }
}

}  // namespace
}  // namespace spillway::io
