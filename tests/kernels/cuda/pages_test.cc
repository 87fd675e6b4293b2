// Operators on whole pages on a GPU: the bytes of their twins, and none besides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/byte_planes.h"
#include "kernels/cuda/page_operators.h"
#include "kernels/page_codec.h"
#include "tests/kernels/cuda/aligned_bytes.h"
#include "tests/kernels/cuda/guarded_rows.h"

namespace spillway::kernels::cuda {
namespace {

TEST(CudaPagesTest, pages_from_anywhere_lie_together_and_go_back) {
  constexpr uint32_t kPool = 7;
  for (const size_t page_bytes : {4096u, 12288u, 16384u, 20480u, 36864u}) {
    for (const uint32_t count : {0u, 1u, 2u, kPool}) {
      SCOPED_TRACE(testing::Message() << count << " pages of " << page_bytes);
      std::vector<PageId> pages(kPool);
      for (uint32_t i = 0; i < kPool; ++i) pages[i] = PageId{(5 * i + 3) % kPool};
      pages.resize(count);
      const AlignedBytes pool(kPool * page_bytes, 1);
      AlignedBytes together(count * page_bytes, 2), from = pool;
      GpuUnderTest gpu;
      const PageCopyArgs gather{.pool = from.data(),
                                .pages = pages.data(),
                                .count = count,
                                .page_bytes = page_bytes,
                                .contiguous = together.data()};
      gpu.run(gather_pages, gather);
      EXPECT_EQ(from, pool);
      for (uint32_t i = 0; i < count; ++i) {
        const std::byte* page = pool.data() + static_cast<uint32_t>(pages[i]) * page_bytes;
        EXPECT_EQ(std::memcmp(together.data() + i * page_bytes, page, page_bytes), 0) << i;
      }

      AlignedBytes to(pool.size(), 3);
      AlignedBytes expected = to;
      for (const PageId page : pages) {
        const size_t at = static_cast<uint32_t>(page) * page_bytes;
        std::copy_n(pool.data() + at, page_bytes, expected.data() + at);
      }
      PageCopyArgs scatter = gather;
      scatter.pool = to.data();
      gpu.run(scatter_pages, scatter);
      EXPECT_EQ(to, expected);
    }
  }
}

TEST(CudaPagesTest, planes_are_those_of_the_codec_and_join_again) {
  for (const size_t page_bytes : {32u, 64u, 4096u, 8160u, 8192u, 8224u, 20480u}) {
    for (const uint32_t count : {0u, 1u, 3u}) {
      SCOPED_TRACE(testing::Message() << count << " pages of " << page_bytes);
      const AlignedBytes pages(count * page_bytes, 5);
      AlignedBytes from = pages, planes(pages.size(), 6), expected(pages.size(), 6);
      const size_t numbers = page_bytes / 2;
      for (uint32_t page = 0; page < count; ++page) {
        std::byte* const to = expected.data() + page * page_bytes;
        kernels::split_planes(pages.data() + page * page_bytes, numbers, to, to + numbers);
      }
      GpuUnderTest gpu;
      gpu.run(split_planes, {.pages = from.data(),
                             .planes = planes.data(),
                             .count = count,
                             .page_bytes = page_bytes});
      EXPECT_EQ(planes, expected);
      EXPECT_EQ(from, pages);

      AlignedBytes back(pages.size(), 8);
      gpu.run(join_planes, {.pages = back.data(),
                            .planes = planes.data(),
                            .count = count,
                            .page_bytes = page_bytes});
      EXPECT_EQ(back, pages);
      EXPECT_EQ(planes, expected);
    }
  }
}

TEST(CudaPagesTest, an_encoded_page_holds_the_lower_plane_as_it_is) {
  constexpr size_t kBytes = 4096;
  AlignedBytes page(kBytes, 9), planes(kBytes, 10);
  PageCoder coder;
  std::vector<std::byte> encoded(2 * kBytes);
  ASSERT_GT(coder.encode(PageCodec::kPlanes, {page.data(), kBytes}, encoded), kBytes / 2);
  GpuUnderTest gpu;
  gpu.run(split_planes,
          {.pages = page.data(), .planes = planes.data(), .count = 1, .page_bytes = kBytes});
  const std::byte* const lower = encoded.data() + sizeof(uint32_t);  // after one piece's size
  EXPECT_EQ(std::memcmp(planes.data() + kBytes / 2, lower, kBytes / 2), 0);
}

}  // namespace
}  // namespace spillway::kernels::cuda
