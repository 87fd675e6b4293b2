// Pages of KV (paged_kv.h) on a GPU: where an element lies, and how it is stored.
#pragma once

#include "kernels/cuda/operators.h"
#include "kernels/cuda/platform.cuh"

namespace spillway::kernels::cuda {

template <KvType kType>
struct KvCodec {  // two bytes, as their bits
  using Stored = uint16_t;
  using Pair = uint32_t;
  static constexpr bool kHalf = kType == KvType::kF16;
  static SPILLWAY_DEVICE float widen(Stored bits) {
    return kHalf ? f16_to_float(bits) : bf16_to_float(bits);
  }
  static SPILLWAY_DEVICE Float2 widen_pair(Pair pair) {
    return {widen(static_cast<Stored>(pair)), widen(static_cast<Stored>(pair >> 16))};
  }
  static SPILLWAY_DEVICE Stored narrow(float value) {  // F16 saturates
    if (!kHalf) return float_to_bf16(value);
    const float capped = value > 65504.0f ? 65504.0f : value;
    return float_to_f16(capped < -65504.0f ? -65504.0f : capped);
  }
};
template <>
struct KvCodec<KvType::kF32> {
  using Stored = float;
  using Pair = Float2;
  static SPILLWAY_DEVICE float widen(Stored value) { return value; }
  static SPILLWAY_DEVICE Float2 widen_pair(Pair pair) { return pair; }
  static SPILLWAY_DEVICE Stored narrow(float value) { return value; }
};

// K of one head's block of 16 tokens, [head_dim][16]; V follows, [16][head_dim].
// REQUIRES: the table has a page for it.
SPILLWAY_DEVICE std::byte* kv_block(const DeviceKv& kv, const PageId* table, uint32_t layer,
                                    uint32_t kv_head, uint32_t block) {
  const uint32_t per_page = kv.layout.page_tokens / kKvBlockTokens;
  const auto page = static_cast<uint32_t>(table[block / per_page]);
  return kv.pages + page * kv.layout.page_bytes() +
         kv.layout.offset(layer, kv_head, block % per_page);
}

template <KvType kType>
struct KvTag {
  static constexpr KvType value = kType;
};

template <class Use>
auto with_kv_type(KvType type, const Use& use) {
  if (type == KvType::kF32) return use(KvTag<KvType::kF32>{});
  if (type == KvType::kF16) return use(KvTag<KvType::kF16>{});
  return use(KvTag<KvType::kBf16>{});
}

}  // namespace spillway::kernels::cuda
