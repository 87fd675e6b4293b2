// Tensor cores and asynchronous copies on the emulator: kernels/cuda/tensor_core.cuh says what each
// does. Fragments lie in registers as the PTX ISA documents them ("Matrix Fragments for
// mma.m16n8k16" and following). Sums of 16-bit products are made in double and rounded once; a GPU,
// whose order and width is not documented, may differ in the last bits. Integer sums are exact on
// both.
#pragma once

#include "tests/emulator/cuda.h"

namespace spillway::kernels::cuda {

namespace emulated {

// What a lane holds of A and B.
struct Fragments {
  uint32_t a[4] = {};
  uint32_t b[2] = {};
};

using Warp = std::span<const emulator::LaneSlot, emulator::kWarpThreads>;

inline Fragments fragments_of(const Warp& warp, uint32_t lane) {
  Fragments out;
  std::memcpy(&out, warp[lane].bytes.data(), sizeof out);
  return out;
}

// Where element (row, k) of A and (k, column) of B are, for elements of kPack to a register.
template <uint32_t kPack>
uint32_t a_word(const Warp& warp, uint32_t row, uint32_t k) {
  const uint32_t lane = row % 8 * 4 + k % (4 * kPack) / kPack;
  return fragments_of(warp, lane).a[(row >= 8 ? 1 : 0) + (k >= 4 * kPack ? 2 : 0)];
}
template <uint32_t kPack>
uint32_t b_word(const Warp& warp, uint32_t k, uint32_t column) {
  const uint32_t lane = column * 4 + k % (4 * kPack) / kPack;
  return fragments_of(warp, lane).b[k >= 4 * kPack ? 1 : 0];
}

// The rows and columns of the accumulators c[0..3].
inline uint32_t c_row(uint32_t lane, uint32_t i) { return lane / 4 + (i >= 2 ? 8 : 0); }
inline uint32_t c_column(uint32_t lane, uint32_t i) { return lane % 4 * 2 + i % 2; }

inline void mma_16_bit(float (&c)[4], const Fragments& mine, float (*widen)(uint16_t),
                       const Site& site) {
  emulator::Thread& thread = emulator::this_thread();
  const Warp warp = thread.exchange(0xffffffffu, &mine, sizeof mine, site);
  const uint32_t lane = thread.index() % emulator::kWarpThreads;
  for (uint32_t i = 0; i < 4; ++i) {
    double sum = c[i];
    for (uint32_t k = 0; k < 16; ++k) {
      const uint32_t shift = 16 * (k % 2);
      const auto a = static_cast<uint16_t>(a_word<2>(warp, c_row(lane, i), k) >> shift);
      const auto b = static_cast<uint16_t>(b_word<2>(warp, k, c_column(lane, i)) >> shift);
      sum += double{widen(a)} * double{widen(b)};
    }
    c[i] = static_cast<float>(sum);
  }
}

inline void mma_8_bit(int32_t (&c)[4], const Fragments& mine, uint32_t depth, const Site& site) {
  emulator::Thread& thread = emulator::this_thread();
  const Warp warp = thread.exchange(0xffffffffu, &mine, sizeof mine, site);
  const uint32_t lane = thread.index() % emulator::kWarpThreads;
  for (uint32_t i = 0; i < 4; ++i) {
    for (uint32_t k = 0; k < depth; ++k) {
      const uint32_t shift = 8 * (k % 4);
      const auto a = static_cast<int8_t>(a_word<4>(warp, c_row(lane, i), k) >> shift);
      const auto b = static_cast<int8_t>(b_word<4>(warp, k, c_column(lane, i)) >> shift);
      c[i] += int32_t{a} * int32_t{b};
    }
  }
}

// The offset of the row of eight elements that each lane names.
inline Warp exchange_rows(const Shared<uint16_t>& tile, size_t index, const Site& site) {
  const size_t offset = tile.byte_offset(index);
  emulator::Thread& thread = emulator::this_thread();
  if (offset % 16 != 0) {
    thread.report(emulator::DefectKind::kMisaligned, "names a row off its 16 bytes", site);
  }
  const bool good = tile.within(index, 16, site) && offset % 16 == 0;
  const size_t named = good ? offset : ~size_t{0};
  return thread.exchange(0xffffffffu, &named, sizeof named, site);
}

inline uint16_t row_element(const Warp& rows, uint32_t row, uint32_t column, const Site& site) {
  size_t offset = 0;
  std::memcpy(&offset, rows[row].bytes.data(), sizeof offset);
  uint16_t value = 0xffff;
  if (offset == ~size_t{0}) return value;
  const emulator::SharedRange range{offset + 2 * column, 2, 2};
  emulator::Thread& thread = emulator::this_thread();
  if (thread.check(Access::kRead, range, site)) {
    std::memcpy(&value, thread.block().shared().at(range.first), sizeof value);
  }
  return value;
}

}  // namespace emulated

inline void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                    const Site& site = Site::current()) {
  emulated::mma_16_bit(c, {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, f16_to_float, site);
}
inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                     const Site& site = Site::current()) {
  emulated::mma_16_bit(c, {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, bf16_to_float, site);
}
inline void mma_s8_k32(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const Site& site = Site::current()) {
  emulated::mma_8_bit(c, {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, 32, site);
}
inline void mma_s8_k16(int32_t (&c)[4], const uint32_t (&a)[2], uint32_t b,
                       const Site& site = Site::current()) {
  emulated::mma_8_bit(c, {{a[0], a[1]}, {b}}, 16, site);
}

inline void load_matrices(uint32_t (&out)[4], const Shared<uint16_t>& tile, size_t index,
                          const Site& site = Site::current()) {
  const emulated::Warp rows = emulated::exchange_rows(tile, index, site);
  const uint32_t lane = thread_index() % emulator::kWarpThreads;
  for (uint32_t m = 0; m < 4; ++m) {
    const uint32_t low = emulated::row_element(rows, 8 * m + lane / 4, lane % 4 * 2, site);
    const uint32_t high = emulated::row_element(rows, 8 * m + lane / 4, lane % 4 * 2 + 1, site);
    out[m] = low | high << 16;
  }
}
inline void load_matrices_transposed(uint32_t (&out)[4], const Shared<uint16_t>& tile, size_t index,
                                     const Site& site = Site::current()) {
  const emulated::Warp rows = emulated::exchange_rows(tile, index, site);
  const uint32_t lane = thread_index() % emulator::kWarpThreads;
  for (uint32_t m = 0; m < 4; ++m) {
    const uint32_t low = emulated::row_element(rows, 8 * m + lane % 4 * 2, lane / 4, site);
    const uint32_t high = emulated::row_element(rows, 8 * m + lane % 4 * 2 + 1, lane / 4, site);
    out[m] = low | high << 16;
  }
}

template <class T>
void copy_async_16(const Shared<T>& to, size_t index, const void* from, bool valid = true,
                   const Site& site = Site::current()) {
  if (!to.within(index, 16, site)) return;
  emulator::this_thread().issue_copy({to.byte_offset(index), valid ? from : nullptr, 16}, site);
}
template <class T>
void copy_async_4(const Shared<T>& to, size_t index, const void* from, bool valid = true,
                  const Site& site = Site::current()) {
  if (!to.within(index, 4, site)) return;
  emulator::this_thread().issue_copy({to.byte_offset(index), valid ? from : nullptr, 4}, site);
}
inline void commit_copies() { emulator::this_thread().commit_copies(); }
template <int kPending>
void wait_copies() {
  emulator::this_thread().wait_copies(kPending);
}

}  // namespace spillway::kernels::cuda
