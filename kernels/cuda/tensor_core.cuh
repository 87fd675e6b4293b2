// Tensor cores and asynchronous copies: one thin function per PTX instruction, all of compute
// capability 8.0. Every lane of the warp calls each; fragments lie as the PTX ISA documents them.
// With g = lane / 4 and t = lane % 4:
//   16-bit, depth 16   a[0] (g, 2t..2t+1)  a[1] (g+8, 2t..)  a[2] (g, 2t+8..)  a[3] (g+8, 2t+8..)
//                      b[0] (2t..2t+1, g)  b[1] (2t+8.., g)
//   8-bit, depth 32    a[0] (g, 4t..4t+3)  a[1] (g+8, 4t..)  a[2] (g, 4t+16..)  a[3] (g+8, 4t+16..)
//                      b[0] (4t..4t+3, g)  b[1] (4t+16.., g)
//   8-bit, depth 16    a[0], a[1] and b as the first of those
//   accumulators       c[0..1] (g, 2t..2t+1)  c[2..3] (g+8, 2t..2t+1)
// tests/emulator/tensor_core.h does the same on a CPU.
#pragma once

#include "kernels/cuda/platform.cuh"

#if !defined(__CUDACC__)
#include SPILLWAY_CUDA_EMULATOR_TENSOR_CORE
#else

namespace spillway::kernels::cuda {

// c += a b: 16 x 8 from 16 x 16 and 16 x 8.
SPILLWAY_DEVICE void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
SPILLWAY_DEVICE void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same of signed bytes, exact: 16 x 8 from 16 x 32 and 32 x 8, and from depth 16.
SPILLWAY_DEVICE void mma_s8_k32(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
SPILLWAY_DEVICE void mma_s8_k16(int32_t (&c)[4], const uint32_t (&a)[2], uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

// ldmatrix.x4: four 8 x 8 matrices of 16-bit elements. Lane 8m + r names row r of matrix m, 16
// aligned bytes; out[m] gets (g, 2t..2t+1) of matrix m, transposed (2t..2t+1, g).
SPILLWAY_DEVICE void load_matrices(uint32_t (&out)[4], const Shared<uint16_t>& tile, size_t index) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(tile.address(index))
               : "memory");
}
SPILLWAY_DEVICE void load_matrices_transposed(uint32_t (&out)[4], const Shared<uint16_t>& tile,
                                              size_t index) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(tile.address(index))
               : "memory");
}

// cp.async of 16 aligned bytes to shared memory, past L1; zeros where not valid (`from` is not read
// then). Not to be touched until this thread has waited for its group, nor by others before a
// barrier after that. Of 4 bytes too, through L1.
template <class T>
SPILLWAY_DEVICE void copy_async_16(const Shared<T>& to, size_t index, const void* from,
                                   bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to.address(index)), "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
               : "memory");
}
template <class T>
SPILLWAY_DEVICE void copy_async_4(const Shared<T>& to, size_t index, const void* from,
                                  bool valid = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"(to.address(index)), "l"(__cvta_generic_to_global(from)), "r"(valid ? 4 : 0)
               : "memory");
}
SPILLWAY_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most kPending of this thread's groups have not landed.
template <int kPending>
SPILLWAY_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace spillway::kernels::cuda
#endif
