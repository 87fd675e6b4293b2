// XXH3-64 with a seed, of bands of pages: the checksum that the store keeps of each.
//
// Source: the XXH3 section of the xxHash specification (doc/xxhash_spec.md), inputs of more than
// 240 bytes. Eight 64-bit accumulators take stripes of 64 bytes; after each block of 16 stripes
// they are scrambled. What a block adds does not depend on what was there before, and sums of
// 64-bit integers come in any order: so warps add up blocks side by side, and what must go one
// after another is a scramble per KiB alone.
//
// Sketch, H200: a band of 256 KiB is 256 scrambles of about 30 cycles, 4.5 us. One thread block a
// band, 4 an SM (64 registers): 528 bands, 66 pages of 2 MiB in 8 bands, fill the GPU with 128 KiB
// under way an SM and go at the memory's pace, 138 MB in 29 us. A page alone takes 5 us.
#pragma once

#include "kernels/cuda/page_copy.cuh"

namespace spillway::kernels::cuda {

inline constexpr uint32_t kStripeBytes = 64;
inline constexpr uint32_t kHashBlockBytes = 1024;  // 16 stripes
inline constexpr uint32_t kHashLanes = 8;          // accumulators
inline constexpr uint32_t kHashKeys = 24;

// The algorithm's numbers. A kernel gets them as a parameter: there they can be indexed.
struct HashConstants {
  uint64_t secret[kHashKeys];
  uint64_t start[kHashLanes];
};

inline constexpr uint64_t kHashPrime32 = 0x9E3779B1;
inline constexpr uint64_t kHashPrime64 = 0x9E3779B185EBCA87;

inline constexpr HashConstants kHashConstants = {
    .secret =
        {
            0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
            0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
            0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
            0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
            0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
            0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
        },
    .start = {0xC2B2AE3D, kHashPrime64, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
              0x85EBCA77, 0x27D4EB2F165667C5, kHashPrime32}};

inline constexpr uint32_t kChecksumThreads = 256;
inline constexpr uint32_t kChecksumWarps = kChecksumThreads / 32;
inline constexpr uint32_t kHashAtOnce = 4;  // blocks that a warp loads before it adds them up
inline constexpr uint32_t kHashTile = kHashAtOnce * kChecksumWarps;

// Two neighbouring accumulators: each takes the other's input as it is.
struct HashPair {
  uint64_t even = 0;
  uint64_t odd = 0;
};

SPILLWAY_DEVICE uint64_t product_of_halves(uint64_t x) { return (x & 0xffffffffu) * (x >> 32); }

SPILLWAY_DEVICE uint64_t joined(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

SPILLWAY_DEVICE void take_input(HashPair& sum, const Words4& input, const HashPair& key) {
  const uint64_t even = joined(input.word[0], input.word[1]);
  const uint64_t odd = joined(input.word[2], input.word[3]);
  sum.even += odd + product_of_halves(even ^ key.even);
  sum.odd += even + product_of_halves(odd ^ key.odd);
}

// Lane l of a warp has vector l % 4 of stripes l / 4 and 8 + l / 4: over those with equal l % 4.
SPILLWAY_DEVICE HashPair over_stripes(HashPair sum) {
  for (uint32_t bits = 4; bits < 32; bits *= 2) {
    sum.even += shuffle_xor(sum.even, bits);
    sum.odd += shuffle_xor(sum.odd, bits);
  }
  return sum;
}

SPILLWAY_DEVICE const Words4* vectors_at(const std::byte* data, uint64_t byte) {
  return reinterpret_cast<const Words4*>(data + byte);
}

// 8 bytes of the keys from any byte on that is no multiple of 8.
SPILLWAY_DEVICE uint64_t key_at(const Shared<uint64_t>& keys, uint32_t byte) {
  const uint64_t low = keys[byte / 8], high = keys[byte / 8 + 1];
  const uint32_t shift = byte % 8 * 8;
  return low >> shift | high << (64 - shift);
}

// What blocks [first, end) add, (block - first, accumulator), by all warps. At most a tile.
SPILLWAY_DEVICE void add_up_blocks(const DeviceBytes& part, uint64_t first, uint64_t end,
                                   const HashPair (&keys)[2], const Shared<uint64_t>& sums) {
  const uint32_t lane = thread_index() % 32, warp = thread_index() / 32;
  Words4 held[kHashAtOnce][2];
  SPILLWAY_UNROLL
  for (uint32_t i = 0; i < kHashAtOnce; ++i) {
    const uint64_t block = first + i * kChecksumWarps + warp;
    if (block >= end) continue;
    const Words4* const from = vectors_at(part.data, block * kHashBlockBytes);
    held[i][0] = from[lane];
    held[i][1] = from[32 + lane];
  }
  SPILLWAY_UNROLL
  for (uint32_t i = 0; i < kHashAtOnce; ++i) {
    const uint32_t in_tile = i * kChecksumWarps + warp;
    if (first + in_tile >= end) continue;
    HashPair sum;
    take_input(sum, held[i][0], keys[0]);
    take_input(sum, held[i][1], keys[1]);
    sum = over_stripes(sum);
    if (lane < kHashLanes / 2) {
      sums[in_tile * kHashLanes + 2 * lane] = sum.even;
      sums[in_tile * kHashLanes + 2 * lane + 1] = sum.odd;
    }
  }
}

// What follows the last whole block before the end (at least one stripe): added to the
// accumulators, one in each of the first 8 lanes. One warp.
SPILLWAY_DEVICE uint64_t add_rest(const DeviceBytes& part, uint64_t begin, uint64_t state,
                                  const HashPair (&keys)[2], const Shared<uint64_t>& shared_keys) {
  const uint32_t lane = thread_index() % 32;
  const auto stripes = static_cast<uint32_t>((part.bytes - begin - 1) / kStripeBytes);
  const Words4* const from = vectors_at(part.data, begin);
  HashPair sum;
  if (lane / 4 < stripes) take_input(sum, from[lane], keys[0]);
  if (8 + lane / 4 < stripes) take_input(sum, from[32 + lane], keys[1]);
  sum = over_stripes(sum);
  const uint64_t even = shuffle(sum.even, lane / 2), odd = shuffle(sum.odd, lane / 2);
  state += lane % 2 == 0 ? even : odd;

  const uint32_t accumulator = lane % kHashLanes;
  const std::byte* const last = part.data + part.bytes - kStripeBytes;
  const uint64_t input = reinterpret_cast<const uint64_t*>(last)[accumulator];
  const uint64_t key = key_at(shared_keys, 121 + 8 * accumulator);
  return state + shuffle_xor(input, 1) + product_of_halves(input ^ key);
}

// All accumulators, one a lane of the first 8, as one number. One warp.
SPILLWAY_DEVICE uint64_t merged(uint64_t state, uint64_t bytes, const Shared<uint64_t>& keys) {
  const uint32_t accumulator = thread_index() % kHashLanes;
  const uint64_t mixed = state ^ key_at(keys, 11 + 8 * accumulator);
  const uint64_t other = shuffle_xor(mixed, 1);
  uint64_t sum = (mixed * other) ^ upper_product(mixed, other);
  sum += shuffle_xor(sum, 2);
  sum += shuffle_xor(sum, 4);
  sum += bytes * kHashPrime64;
  sum = (sum ^ sum >> 37) * 0x165667919E3779F9;
  return sum ^ sum >> 32;
}

SPILLWAY_KERNEL void SPILLWAY_THREADS(kChecksumThreads)
    checksum_kernel(ChecksumArgs args, HashConstants constants) {
  SPILLWAY_SHARED(uint64_t, keys, kHashKeys);
  SPILLWAY_SHARED(uint64_t, sums, 2 * kHashTile * kHashLanes);  // two tiles: they take turns
  const DeviceBytes part = args.parts[block_index().x];
  const uint32_t lane = thread_index() % 32, warp = thread_index() / 32;
  if (thread_index() < kHashKeys) {
    const uint64_t seed = thread_index() % 2 == 0 ? part.seed : 0 - part.seed;
    keys[thread_index()] = constants.secret[thread_index()] + seed;
  }
  sync_threads();
  const uint32_t key = lane / 4 + 2 * (lane % 4);
  const HashPair own_keys[2] = {{keys[key], keys[key + 1]}, {keys[key + 8], keys[key + 9]}};
  const uint64_t scramble_key = keys[16 + lane % kHashLanes];
  const uint64_t blocks = (part.bytes - 1) / kHashBlockBytes;
  uint64_t state = constants.start[lane % kHashLanes];  // of warp 0, whose lanes repeat by eights
  for (uint64_t first = 0; first < blocks; first += kHashTile) {
    const uint64_t end = first + kHashTile < blocks ? first + kHashTile : blocks;
    const auto tile =
        sums.part(static_cast<size_t>(first / kHashTile % 2) * kHashTile * kHashLanes);
    add_up_blocks(part, first, end, own_keys, tile);
    sync_threads();
    if (warp != 0) continue;  // on to the other tile, while warp 0 takes this one
    for (uint32_t i = 0; i < end - first; ++i) {
      state += tile[i * kHashLanes + lane % kHashLanes];
      state = (state ^ state >> 47 ^ scramble_key) * kHashPrime32;
    }
  }
  if (warp != 0) return;
  state = add_rest(part, blocks * kHashBlockBytes, state, own_keys, keys);
  const uint64_t sum = merged(state, part.bytes, keys);
  if (lane == 0) args.sums[block_index().x] = sum;
}

template <class Launcher>
auto checksum(Launcher& launch, const ChecksumArgs& args) {
  const LaunchShape shape{.grid = {args.count, 1, 1}, .threads = kChecksumThreads};
  return launch(checksum_kernel, shape, args, kHashConstants);
}

}  // namespace spillway::kernels::cuda
