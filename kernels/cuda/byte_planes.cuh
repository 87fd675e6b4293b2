// Pages of 16-bit numbers into planes of bytes and back (byte_planes.h): the part of the page codec
// that is moving bytes. What is entropy coded can go over the bus by itself then.
//
// Sketch, H200: as page_copy.cuh, a page of 2 MiB is 4 MB of traffic, 0.9 us. A thread takes 16
// numbers: 32 bytes in, two vectors of 16 bytes out, some 60 integer instructions between, under a
// tenth of what the SMs have time for meanwhile.
#pragma once

#include "kernels/cuda/page_copy.cuh"

namespace spillway::kernels::cuda {

// Two numbers, each turned left by a bit, and back.
SPILLWAY_DEVICE uint32_t turned_left(uint32_t pair) {
  return (pair << 1 & 0xfffefffeu) | (pair >> 15 & 0x00010001u);
}
SPILLWAY_DEVICE uint32_t turned_right(uint32_t pair) {
  return (pair >> 1 & 0x7fff7fffu) | (pair << 15 & 0x80008000u);
}

// Bytes 0 and 2 of two words, as one word; shifted by 8, bytes 1 and 3.
SPILLWAY_DEVICE uint32_t even_bytes(uint32_t a, uint32_t b) {
  return (a & 0xffu) | (a >> 8 & 0xff00u) | (b << 16 & 0xff0000u) | (b << 8 & 0xff000000u);
}
// The inverse: bytes 0 and 1 of `bytes` at 0 and 2.
SPILLWAY_DEVICE uint32_t spread_bytes(uint32_t bytes) {
  return (bytes & 0xffu) | (bytes << 8 & 0xff0000u);
}

inline constexpr uint32_t kPlanesThreads = 256;
inline constexpr uint32_t kPlanesNumbers = 16;  // a thread

struct PlanePlaces {
  Words4* numbers;  // two
  Words4* upper;
  Words4* lower;
};

// Those of this thread; numbers is null past the page's end.
SPILLWAY_DEVICE PlanePlaces plane_places(const PlanesArgs& args) {
  const size_t piece = size_t{block_index().x} * kPlanesThreads + thread_index();
  const size_t half = args.page_bytes / 2;
  if (piece * kPlanesNumbers >= half) return {nullptr, nullptr, nullptr};
  std::byte* const page = args.pages + block_index().y * args.page_bytes;
  std::byte* const planes = args.planes + block_index().y * args.page_bytes;
  return {reinterpret_cast<Words4*>(page) + 2 * piece, reinterpret_cast<Words4*>(planes) + piece,
          reinterpret_cast<Words4*>(planes + half) + piece};
}

SPILLWAY_KERNEL void SPILLWAY_THREADS(kPlanesThreads) split_planes_kernel(PlanesArgs args) {
  const PlanePlaces at = plane_places(args);
  if (at.numbers == nullptr) return;
  const Words4 in[2] = {at.numbers[0], at.numbers[1]};
  Words4 upper, lower;
  SPILLWAY_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t a = turned_left(in[i / 2].word[2 * i % 4]);
    const uint32_t b = turned_left(in[i / 2].word[2 * i % 4 + 1]);
    upper.word[i] = even_bytes(a >> 8, b >> 8);
    lower.word[i] = even_bytes(a, b);
  }
  *at.upper = upper;
  *at.lower = lower;
}

SPILLWAY_KERNEL void SPILLWAY_THREADS(kPlanesThreads) join_planes_kernel(PlanesArgs args) {
  const PlanePlaces at = plane_places(args);
  if (at.numbers == nullptr) return;
  const Words4 upper = *at.upper, lower = *at.lower;
  Words4 out[2];
  SPILLWAY_UNROLL
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t shift = i % 2 * 16;
    const uint32_t turned =
        spread_bytes(upper.word[i / 2] >> shift) << 8 | spread_bytes(lower.word[i / 2] >> shift);
    out[i / 4].word[i % 4] = turned_right(turned);
  }
  at.numbers[0] = out[0];
  at.numbers[1] = out[1];
}

inline LaunchShape planes_shape(const PlanesArgs& args) {
  constexpr size_t kBytes = 2 * kPlanesNumbers * kPlanesThreads;
  return {.grid = {static_cast<uint32_t>((args.page_bytes + kBytes - 1) / kBytes), args.count, 1},
          .threads = kPlanesThreads};
}

template <class Launcher>
auto split_planes(Launcher& launch, const PlanesArgs& args) {
  return launch(split_planes_kernel, planes_shape(args), args);
}

template <class Launcher>
auto join_planes(Launcher& launch, const PlanesArgs& args) {
  return launch(join_planes_kernel, planes_shape(args), args);
}

}  // namespace spillway::kernels::cuda
