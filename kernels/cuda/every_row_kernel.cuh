// Every kernel of the operators on rows and pages: the operators choose all of
// theirs, one after the other. What they are given besides is nothing, so `launch` must not run
// them (loading.h).
#pragma once

#include <initializer_list>

#include "kernels/cuda/bias.cuh"
#include "kernels/cuda/embedding.cuh"
#include "kernels/cuda/gated.cuh"
#include "kernels/cuda/gather_rows.cuh"
#include "kernels/cuda/logits.cuh"
#include "kernels/cuda/rms_norm.cuh"
#include "kernels/cuda/rope.cuh"
#include "kernels/cuda/write_kv.cuh"

namespace spillway::kernels::cuda {

template <class Launcher>
void every_row_kernel(Launcher& launch) {
  rms_norm(launch, RmsNormArgs{});
  rope(launch, RopeArgs{});
  gated(launch, GatedArgs{});
  add_bias(launch, AddBiasArgs{});
  gather_rows(launch, GatherRowsArgs{});
  soft_cap(launch, SoftCapArgs{});
  argmax(launch, ArgmaxArgs{});
  EmbeddingArgs embedded;
  for (const TensorType type : kTensorTypes) {
    embedded.w.type = type;
    embedding(launch, embedded);
  }
  WriteKvArgs written;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16}) {
    written.kv.layout.type = type;
    write_kv(launch, written);
  }
}

}  // namespace spillway::kernels::cuda
