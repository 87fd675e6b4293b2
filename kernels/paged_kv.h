// What a page of KV cache looks like in memory, and the view of a sequence's pages that the
// attention kernels read. Plain types only: this header is included by CUDA sources.
//
// A page belongs to one layer group (layers that attend alike: full attention, or one sliding
// window) and holds `page_tokens` tokens of all the group's layers, contiguous and 4 KiB aligned:
//   (layer, kv_head, block of 16 tokens, {K,V}, inner)
// `inner` is what the attention kernel loads best, K [head_dim][16] and V [16][head_dim]: one
// vector holds one dimension of 16 tokens (K) or 16 dimensions of one token (V), widened to f32 by
// one instruction, and no kernel transposes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway::kernels {

enum class PageId : uint32_t {};
inline constexpr PageId kNoPage{0xffffffffu};  // given back (behind a window) or not yet there

enum class KvType : uint8_t { kF32, kF16, kBf16 };

constexpr size_t kv_type_bytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

inline constexpr uint32_t kKvBlockTokens = 16;  // tokens in the kernel's inner block
inline constexpr size_t kPageAlignment = 4096;

struct KvGroupLayout {
  uint32_t layers = 0;  // layers in the group
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;      // even
  uint32_t page_tokens = 16;  // a multiple of kKvBlockTokens
  uint32_t window = 0;        // tokens a query sees, its own included; 0: all
  KvType type = KvType::kF16;
  // Where the pages lie in memory that others share (model/division.h): bytes from one to the next.
  // 0: as many as a page has.
  size_t stride_bytes = 0;

  // Bytes of K, or of V, of one head's block of 16 tokens.
  constexpr size_t block_bytes() const {
    return size_t{kKvBlockTokens} * head_dim * kv_type_bytes(type);
  }
  constexpr size_t head_bytes() const { return 2 * block_bytes() * (page_tokens / kKvBlockTokens); }
  constexpr size_t layer_bytes() const { return head_bytes() * kv_heads; }
  // Bytes of what the layers hold, rounded up to kPageAlignment.
  constexpr size_t own_bytes() const {
    return (layer_bytes() * layers + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
  }
  // Bytes of a page, which are also those from one page to the next.
  constexpr size_t page_bytes() const { return stride_bytes != 0 ? stride_bytes : own_bytes(); }
  // Offset in a page of K of (layer, kv_head, block); V follows at + block_bytes().
  constexpr size_t offset(uint32_t layer, uint32_t kv_head, uint32_t block) const {
    return layer * layer_bytes() + kv_head * head_bytes() + block * 2 * block_bytes();
  }
};

// One sequence's pages of one group. `table[i]` is the page of tokens [i*page_tokens, ...).
// Entries that no query of the step can see may be kNoPage. The memory belongs to the page pool.
struct PagedKv {
  const KvGroupLayout* layout = nullptr;
  std::byte* pages = nullptr;  // page p starts at pages + p * layout->page_bytes()
  std::span<const PageId> table;
};

}  // namespace spillway::kernels
