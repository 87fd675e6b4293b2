#include "kernels/paged_kv.h"

#include <gtest/gtest.h>

namespace spillway::kernels {
namespace {

TEST(KvGroupLayoutTest, pages_are_whole_multiples_of_4_kib) {
  const KvGroupLayout layout{.layers = 3, .kv_heads = 1, .head_dim = 10};
  EXPECT_EQ(layout.page_bytes() % kPageAlignment, 0u);
  EXPECT_GE(layout.page_bytes(), layout.layers * layout.layer_bytes());
}

TEST(KvGroupLayoutTest, offsets_of_all_blocks_tile_the_page) {
  const KvGroupLayout layout{.layers = 2, .kv_heads = 3, .head_dim = 64, .page_tokens = 32};
  size_t expected = 0;
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    for (uint32_t head = 0; head < layout.kv_heads; ++head) {
      for (uint32_t block = 0; block < 2; ++block) {
        EXPECT_EQ(layout.offset(layer, head, block), expected);
        expected += 2 * layout.block_bytes();
      }
    }
  }
  EXPECT_LE(expected, layout.page_bytes());
}

}  // namespace
}  // namespace spillway::kernels
