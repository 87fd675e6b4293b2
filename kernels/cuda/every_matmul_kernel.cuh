// Every kernel that matrix products may launch: the operators choose all of
// theirs, one after the other. What they are given besides is nothing, so `launch` must not run
// them (loading.h).
#pragma once

#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/matmul_floats.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/unpack.cuh"
#include "kernels/packed_format.h"

namespace spillway::kernels::cuda {

template <class Launcher>
void every_matmul_kernel(Launcher& launch) {
  quantize(launch, QuantizeArgs{});
  narrow(launch, NarrowArgs{});
  UnpackArgs weights;
  MatmulArgs product;
  MatmulFloatsArgs float_product;
  for (const TensorType type : kTensorTypes) {
    product.w.type = float_product.w.type = weights.w.type = type;
    if (type != TensorType::kF32) unpack(launch, weights);
    if (packed_format(type).is_quantized()) {
      matmul_few(launch, product);
      matmul_many<NarrowTile>(launch, product);
      matmul_many<WideTile>(launch, product);
    } else {
      matmul_floats(launch, float_product);
    }
  }
}

}  // namespace spillway::kernels::cuda
