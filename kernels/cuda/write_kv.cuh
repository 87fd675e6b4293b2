// Writing K and V rows of a step into pages.
//
// Sketch, H200: a token of 8 heads of 128 in f16 is 4 KB a layer. V goes in whole lines, K one
// element in each of head_dim sectors of 32 bytes that 16 tokens share: a decoding token's K moves
// 2 x 32 KB, 64 streams 4 MB a layer, 0.9 us; attention reads 2,000 times as much at 8k of context.
// A prefill's chunk fills whole sectors.
#pragma once

#include "kernels/cuda/paged.cuh"

namespace spillway::kernels::cuda {

// One head of one page a block. Of a page whose first token is written now, what follows the last
// row is zeroed.
template <KvType kType>
SPILLWAY_KERNEL void write_kv_kernel(WriteKvArgs args) {
  using Codec = KvCodec<kType>;
  const KvGroupLayout& layout = args.kv.layout;
  const DeviceSequence sequence = args.sequences[block_index().z];
  if (block_index().x >= pages_touched(sequence, layout.page_tokens)) return;
  const uint32_t page = sequence.position / layout.page_tokens + block_index().x;
  const uint32_t start = page * layout.page_tokens;
  const uint32_t end = sequence.position + sequence.rows;
  const bool is_fresh = start >= sequence.position;
  const uint32_t head = block_index().y;
  const uint32_t elements = layout.page_tokens * layout.head_dim;
  for (uint32_t part = 0; part < 2; ++part) {  // K, then V
    for (uint32_t i = thread_index(); i < elements; i += block_threads()) {
      const uint32_t block = i / (kKvBlockTokens * layout.head_dim);
      const uint32_t inner = i % (kKvBlockTokens * layout.head_dim);
      const uint32_t lane = part == 0 ? inner % kKvBlockTokens : inner / layout.head_dim;
      const uint32_t dim = part == 0 ? inner / kKvBlockTokens : inner % layout.head_dim;
      const uint32_t token = start + block * kKvBlockTokens + lane;
      const bool is_row = token >= sequence.position && token < end;
      if (!is_row && !(is_fresh && token >= end)) continue;
      float value = 0;
      if (is_row) {
        const size_t row = sequence.first_row + token - sequence.position;
        const float* from = part == 0 ? args.k : args.v;
        value = from[row * args.stride + head * layout.head_dim + dim];
      }
      std::byte* to =
          kv_block(args.kv, sequence.table, args.layer, head, start / kKvBlockTokens + block) +
          part * layout.block_bytes();
      reinterpret_cast<typename Codec::Stored*>(to)[inner] = Codec::narrow(value);
    }
  }
}

template <class Launcher>
auto write_kv(Launcher& launch, const WriteKvArgs& args) {
  const LaunchShape shape{.grid = {args.pages_max, args.kv.layout.kv_heads, args.sequence_count},
                          .threads = 256};
  return with_kv_type(args.kv.layout.type, [&](auto tag) {
    return launch(write_kv_kernel<decltype(tag)::value>, shape, args);
  });
}

}  // namespace spillway::kernels::cuda
