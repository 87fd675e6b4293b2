// Every kernel that paged attention may launch: the operators choose all of
// theirs, one after the other. What they are given besides is nothing, so `launch` must not run
// them (loading.h).
#pragma once

#include <initializer_list>

#include "kernels/cuda/attention.cuh"

namespace spillway::kernels::cuda {

template <class Launcher>
void every_attention_kernel(Launcher& launch) {
  TiledAttentionArgs args;
  KvGroupLayout& layout = args.rows.kv.layout;
  layout.kv_heads = 1;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16}) {
    layout.type = type;
    for (const uint32_t group : {1u, 2u, 4u, 8u}) {
      args.rows.heads = group;
      layout.head_dim = 64;
      attention(launch, args.rows);
    }
    for (const uint32_t head_dim : {64u, 128u, 256u}) {
      layout.head_dim = head_dim;
      attention_tiles(launch, args);
    }
  }
}

}  // namespace spillway::kernels::cuda
