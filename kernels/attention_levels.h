// What differs by CPU level in writing KV and in attention: one table of functions each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace spillway::kernels {

struct AttentionKernels {
  bool fused = false;  // a product and a sum round once
  // `to` = the n elements of `from` in the 16-bit type; F16 saturates at +-65504.
  void (*narrow)(uint16_t* to, const float* from, size_t n, KvType type);
};

const AttentionKernels& attention_kernels_baseline();
const AttentionKernels& attention_kernels_avx2();
const AttentionKernels& attention_kernels_avx512();
const AttentionKernels& attention_kernels(CpuLevel level);

}  // namespace spillway::kernels
