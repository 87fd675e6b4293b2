// The words that kernels are written in, on a GPU: thin names for what CUDA has. The tests'
// emulator has the same, and sees more: races, bounds, missed barriers.
//
// Compiled with -fmad=false: products and sums round apart unless fused() joins them, so that a
// kernel and its CPU twin round alike. Division and square root are those of IEEE 754, f32
// subnormals are kept (nvcc's defaults).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch_shape.h"

#define SPILLWAY_DEVICE __device__ __forceinline__
#define SPILLWAY_KERNEL static __global__
// The most threads a block that a kernel is launched with: its registers must be few enough.
#define SPILLWAY_THREADS(count) __launch_bounds__(count)
#define SPILLWAY_UNROLL _Pragma("unroll")

// An array in shared memory, one per block, its contents undefined at first.
#define SPILLWAY_SHARED(type, name, count)                                     \
  __shared__ __align__(16) unsigned char name##_bytes[sizeof(type) * (count)]; \
  const ::spillway::kernels::cuda::Shared<type> name(reinterpret_cast<type*>(name##_bytes))

namespace spillway::kernels::cuda {

SPILLWAY_DEVICE uint32_t thread_index() { return threadIdx.x; }
SPILLWAY_DEVICE uint32_t block_threads() { return blockDim.x; }
SPILLWAY_DEVICE Index3 block_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
SPILLWAY_DEVICE Index3 grid_blocks() { return {gridDim.x, gridDim.y, gridDim.z}; }

SPILLWAY_DEVICE void sync_threads() { __syncthreads(); }
SPILLWAY_DEVICE void sync_warp(uint32_t mask = 0xffffffffu) { __syncwarp(mask); }

// The value of lane `lane`; every lane of `mask` must call it.
template <class T>
SPILLWAY_DEVICE T shuffle(T value, uint32_t lane, uint32_t mask = 0xffffffffu) {
  return __shfl_sync(mask, value, lane);
}
template <class T>
SPILLWAY_DEVICE T shuffle_xor(T value, uint32_t bits, uint32_t mask = 0xffffffffu) {
  return __shfl_xor_sync(mask, value, bits);
}
SPILLWAY_DEVICE uint32_t ballot(bool vote, uint32_t mask = 0xffffffffu) {
  return __ballot_sync(mask, vote);
}
SPILLWAY_DEVICE bool any(bool vote, uint32_t mask = 0xffffffffu) { return __any_sync(mask, vote); }
SPILLWAY_DEVICE bool all(bool vote, uint32_t mask = 0xffffffffu) { return __all_sync(mask, vote); }

using Float2 = float2;
using Float4 = float4;

// Shared memory, seen through a checked accessor in the tests and as a plain pointer here.
template <class T>
class Shared {
 public:
  SPILLWAY_DEVICE explicit Shared(T* data) : data_(data) {}
  SPILLWAY_DEVICE T& operator[](size_t index) const { return data_[index]; }
  // sizeof(V) bytes at element `index`, at once; aligned to V.
  template <class V>
  SPILLWAY_DEVICE V load(size_t index) const {
    return *reinterpret_cast<const V*>(data_ + index);
  }
  template <class V>
  SPILLWAY_DEVICE void store(size_t index, const V& value) const {
    *reinterpret_cast<V*>(data_ + index) = value;
  }
  SPILLWAY_DEVICE Shared part(size_t first) const { return Shared(data_ + first); }
  SPILLWAY_DEVICE uint32_t address(size_t index) const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(data_ + index));
  }

 private:
  T* data_;
};

extern __shared__ __align__(16) unsigned char spillway_dynamic_shared[];

// `count` elements of the launch's dynamic shared memory.
template <class T>
SPILLWAY_DEVICE Shared<T> dynamic_shared(size_t first_byte, size_t) {
  return Shared<T>(reinterpret_cast<T*>(spillway_dynamic_shared + first_byte));
}

template <class T>
SPILLWAY_DEVICE T atomic_add(T* to, T value) {
  return atomicAdd(to, value);
}
template <class T>
SPILLWAY_DEVICE T atomic_max(T* to, T value) {
  return atomicMax(to, value);
}
template <class T>
SPILLWAY_DEVICE T atomic_add(const Shared<T>& array, size_t index, T value) {
  return atomicAdd(&array[index], value);
}

SPILLWAY_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
SPILLWAY_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
SPILLWAY_DEVICE uint32_t bits_of(float value) { return __float_as_uint(value); }
SPILLWAY_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }
SPILLWAY_DEVICE int32_t to_nearest_int(float x) { return __float2int_rn(x); }
SPILLWAY_DEVICE uint32_t count_bits(uint32_t bits) {
  return static_cast<uint32_t>(__popc(static_cast<int>(bits)));
}
SPILLWAY_DEVICE uint64_t upper_product(uint64_t a, uint64_t b) { return __umul64hi(a, b); }
SPILLWAY_DEVICE uint32_t subtract_bytes(uint32_t a, uint32_t b) { return __vsub4(a, b); }

// 16-bit floats travel as their bits.
SPILLWAY_DEVICE float f16_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
SPILLWAY_DEVICE float bf16_to_float(uint16_t bits) {
  return float_of(static_cast<uint32_t>(bits) << 16);
}
SPILLWAY_DEVICE uint16_t float_to_f16(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
SPILLWAY_DEVICE uint16_t float_to_bf16(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

}  // namespace spillway::kernels::cuda
