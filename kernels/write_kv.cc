// Writing K and V rows into pages.
//
// Sketch: a token of SmolLM2 writes 384 elements a layer; V goes in runs of head_dim, K one element
// in each of head_dim cache lines that 16 tokens share: 30 layers take about 2 us a token.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_levels.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

constexpr uint32_t kHeadDimMax = 1024;

// One head's block of 16 tokens in a page, and the rows that go to lanes first .. last - 1.
struct BlockWrite {
  std::byte* block = nullptr;  // K; V follows
  const float* k = nullptr;    // of lane `first`
  const float* v = nullptr;
  size_t stride = 0;
  uint32_t first = 0;
  uint32_t last = 0;
};

void store_rows_16(const AttentionKernels& kernels, const KvGroupLayout& layout,
                   const BlockWrite& write) {
  auto* keys = reinterpret_cast<uint16_t*>(write.block);
  auto* values = reinterpret_cast<uint16_t*>(write.block + layout.block_bytes());
  uint16_t key[kHeadDimMax];
  const float* k = write.k;
  const float* v = write.v;
  for (uint32_t lane = write.first; lane < write.last; ++lane) {
    kernels.narrow(key, k, layout.head_dim, layout.type);
    for (uint32_t d = 0; d < layout.head_dim; ++d) keys[d * kKvBlockTokens + lane] = key[d];
    kernels.narrow(values + size_t{lane} * layout.head_dim, v, layout.head_dim, layout.type);
    k += write.stride;
    v += write.stride;
  }
}

void store_rows_32(const KvGroupLayout& layout, const BlockWrite& write) {
  auto* keys = reinterpret_cast<float*>(write.block);
  auto* values = reinterpret_cast<float*>(write.block + layout.block_bytes());
  const float* k = write.k;
  const float* v = write.v;
  for (uint32_t lane = write.first; lane < write.last; ++lane) {
    for (uint32_t d = 0; d < layout.head_dim; ++d) keys[d * kKvBlockTokens + lane] = k[d];
    std::copy_n(v, layout.head_dim, values + size_t{lane} * layout.head_dim);
    k += write.stride;
    v += write.stride;
  }
}

// Writes the rows that fall into absolute block `block` for one head. Blocks of a page whose first
// token is written in this call are zeroed first; the last block also zeroes those after it.
void write_block(const AttentionKernels& kernels, const AttentionSequence& sequence, uint32_t layer,
                 uint32_t kv_head, uint32_t block, const KvRows& rows) {
  const KvGroupLayout& layout = *sequence.kv.layout;
  const uint32_t start = block * kKvBlockTokens;
  const uint32_t end = sequence.position + sequence.rows;
  const uint32_t first = std::max(start, sequence.position);
  const uint32_t last = std::min(start + kKvBlockTokens, end);
  std::byte* address = kv_block_address(sequence.kv, layer, kv_head, block);
  const uint32_t page_start = start / layout.page_tokens * layout.page_tokens;
  if (page_start >= sequence.position) {
    const bool is_last = last == end;
    const uint32_t after = (page_start + layout.page_tokens - start) / kKvBlockTokens;
    if (last - start < kKvBlockTokens || is_last) {
      std::memset(address, 0, (is_last ? after : 1) * 2 * layout.block_bytes());
    }
  }
  const size_t offset = (sequence.first_row + first - sequence.position) * rows.stride +
                        size_t{kv_head} * layout.head_dim;
  const BlockWrite write{.block = address,
                         .k = rows.k + offset,
                         .v = rows.v + offset,
                         .stride = rows.stride,
                         .first = first - start,
                         .last = last - start};
  layout.type == KvType::kF32 ? store_rows_32(layout, write)
                              : store_rows_16(kernels, layout, write);
}

}  // namespace

std::byte* kv_block_address(const PagedKv& kv, uint32_t layer, uint32_t kv_head, uint32_t block) {
  const KvGroupLayout& layout = *kv.layout;
  const uint32_t per_page = layout.page_tokens / kKvBlockTokens;
  const uint32_t index = block / per_page;
  CHECK(index < kv.table.size());
  const PageId page = kv.table[index];
  CHECK(page != kNoPage);
  return kv.pages + static_cast<size_t>(page) * layout.page_bytes() +
         layout.offset(layer, kv_head, block % per_page);
}

void write_kv(CpuLevel level, const Team& team, std::span<const AttentionSequence> sequences,
              uint32_t layer, const KvRows& rows) {
  const AttentionKernels& kernels = attention_kernels(level);
  uint32_t turn = 0;  // blocks go round the workers
  for (const AttentionSequence& sequence : sequences) {
    if (sequence.rows == 0) continue;
    const KvGroupLayout& layout = *sequence.kv.layout;
    CHECK(layer < layout.layers);
    CHECK(layout.head_dim <= kHeadDimMax);
    const uint32_t first = sequence.position / kKvBlockTokens;
    const uint32_t last = (sequence.position + sequence.rows - 1) / kKvBlockTokens;
    for (uint32_t block = first; block <= last; ++block) {
      for (uint32_t head = 0; head < layout.kv_heads; ++head) {
        if (turn++ % team.count() != team.index()) continue;
        write_block(kernels, sequence, layer, head, block, rows);
      }
    }
  }
}

}  // namespace spillway::kernels
