// The fragments of tensor core instructions against plain matrix products. Fragments are laid out
// here by the PTX ISA's formulas, register by register; the emulator looks elements up the other
// way.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/cuda/tensor_core.cuh"
#include "tests/emulator/launch.h"

namespace spillway::kernels::cuda {
namespace {

constexpr LaunchShape kOneWarp{.grid = {1, 1, 1}, .threads = 32};

// Row-major A (16, depth), B (depth, 8) and C (16, 8).
template <class T, class Sum>
struct Product {
  explicit Product(uint32_t depth_in) : depth(depth_in), a(16 * depth_in), b(depth_in * 8), c(128) {
    std::mt19937 random(depth);
    for (auto* matrix : {&a, &b}) {
      for (T& value : *matrix) value = static_cast<T>(static_cast<int>(random() % 255) - 127);
    }
    for (Sum& value : c) value = static_cast<Sum>(static_cast<int>(random() % 2000) - 1000);
  }
  Sum expected(uint32_t row, uint32_t column) const {
    Sum sum = c[row * 8 + column];
    for (uint32_t k = 0; k < depth; ++k) sum += Sum{a[row * depth + k]} * Sum{b[k * 8 + column]};
    return sum;
  }

  uint32_t depth;
  std::vector<T> a, b;
  std::vector<Sum> c;
};

using Narrow = uint16_t (*)(float);
using Multiply = void (*)(float (&)[4], const uint32_t (&)[4], const uint32_t (&)[2], const Site&);

void mma_16_bit_kernel(const Product<float, float>* in, float* out, Narrow narrow,
                       Multiply multiply) {
  const uint32_t group = thread_index() / 4;
  const uint32_t in_group = thread_index() % 4;
  uint32_t a[4] = {}, b[2] = {};
  for (uint32_t i = 0; i < 8; ++i) {  // a0 .. a7
    const uint32_t row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
    const uint32_t column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
    a[i / 2] |= uint32_t{narrow(in->a[row * 16 + column])} << 16 * (i % 2);
  }
  for (uint32_t i = 0; i < 4; ++i) {  // b0 .. b3
    const uint32_t row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
    b[i / 2] |= uint32_t{narrow(in->b[row * 8 + group])} << 16 * (i % 2);
  }
  float c[4];
  for (uint32_t i = 0; i < 4; ++i) {
    c[i] = in->c[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)];
  }
  multiply(c, a, b, Site::current());
  for (uint32_t i = 0; i < 4; ++i) {
    out[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = c[i];
  }
}

void mma_8_bit_kernel(const Product<int8_t, int32_t>* in, int32_t* out) {
  const uint32_t group = thread_index() / 4;
  const uint32_t in_group = thread_index() % 4;
  const uint32_t depth = in->depth;
  uint32_t a[4] = {}, b[2] = {};
  const auto byte = [](int8_t value, uint32_t i) {
    return uint32_t{static_cast<uint8_t>(value)} << 8 * (i % 4);
  };
  for (uint32_t i = 0; i < depth / 2; ++i) {  // a0 .. a7, or a0 .. a15
    const uint32_t row = i < 4 || (i >= 8 && i < 12) ? group : group + 8;
    const uint32_t column = in_group * 4 + (i & 3) + (i >= 8 ? 16 : 0);
    a[i / 4] |= byte(in->a[row * depth + column], i);
  }
  for (uint32_t i = 0; i < depth / 4; ++i) {
    const uint32_t row = in_group * 4 + (i & 3) + (i >= 4 ? 16 : 0);
    b[i / 4] |= byte(in->b[row * 8 + group], i);
  }
  int32_t c[4];
  for (uint32_t i = 0; i < 4; ++i) {
    c[i] = in->c[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)];
  }
  if (depth == 32) mma_s8_k32(c, a, b);
  if (depth == 16) mma_s8_k16(c, {a[0], a[1]}, b[0]);
  for (uint32_t i = 0; i < 4; ++i) {
    out[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = c[i];
  }
}

// Whole numbers up to 127: exact in f16, and in bf16 and f32 too.
TEST(TensorCoreTest, sixteen_bit_products_equal_plain_ones) {
  const Product<float, float> in(16);
  const std::pair<Narrow, Multiply> kinds[] = {{float_to_f16, mma_f16}, {float_to_bf16, mma_bf16}};
  for (const auto& [narrow, multiply] : kinds) {
    std::vector<float> out(128);
    emulator::Launcher launch(1);
    launch(mma_16_bit_kernel, kOneWarp, &in, out.data(), narrow, multiply);
    EXPECT_TRUE(launch.defects().empty()) << launch.text();
    for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], in.expected(i / 8, i % 8)) << i;
  }
}

TEST(TensorCoreTest, eight_bit_products_equal_plain_ones) {
  for (const uint32_t depth : {16u, 32u}) {
    const Product<int8_t, int32_t> in(depth);
    std::vector<int32_t> out(128);
    emulator::Launcher launch(1);
    launch(mma_8_bit_kernel, kOneWarp, &in, out.data());
    EXPECT_TRUE(launch.defects().empty()) << launch.text();
    for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], in.expected(i / 8, i % 8)) << i;
  }
}

// Four 8 x 8 matrices, rows 24 elements apart, whose elements say where they are.
void load_matrices_kernel(uint32_t* out, bool transposed) {
  SPILLWAY_SHARED(uint16_t, tile, 32 * 24);
  for (uint32_t i = thread_index(); i < 32 * 24; i += 32) tile[i] = static_cast<uint16_t>(i);
  sync_warp();
  uint32_t registers[4];
  const size_t row = thread_index() * 24;
  if (transposed) {
    load_matrices_transposed(registers, tile, row);
  } else {
    load_matrices(registers, tile, row);
  }
  for (uint32_t m = 0; m < 4; ++m) out[4 * thread_index() + m] = registers[m];
}

TEST(TensorCoreTest, matrices_load_as_fragments_and_transposed) {
  for (const bool transposed : {false, true}) {
    std::vector<uint32_t> out(128);
    emulator::Launcher launch(1);
    launch(load_matrices_kernel, kOneWarp, out.data(), transposed);
    EXPECT_TRUE(launch.defects().empty()) << launch.text();
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t m = 0; m < 4; ++m) {
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t major = lane / 4;
          const uint32_t minor = lane % 4 * 2 + half;
          const uint32_t row = 8 * m + (transposed ? minor : major);
          const uint32_t column = transposed ? major : minor;
          EXPECT_EQ(out[4 * lane + m] >> 16 * half & 0xffff, row * 24 + column);
        }
      }
    }
  }
}

void misaligned_rows_kernel() {
  SPILLWAY_SHARED(uint16_t, tile, 32 * 8 + 8);
  for (uint32_t i = thread_index(); i < 32 * 8 + 8; i += 32) tile[i] = 0;
  sync_warp();
  uint32_t registers[4];
  load_matrices(registers, tile, thread_index() * 8 + 4);
}

TEST(TensorCoreTest, rows_off_their_alignment_are_reported) {
  emulator::Launcher launch(1);
  launch(misaligned_rows_kernel, kOneWarp);
  EXPECT_TRUE(launch.defects().has(emulator::DefectKind::kMisaligned)) << launch.text();
}

}  // namespace
}  // namespace spillway::kernels::cuda
