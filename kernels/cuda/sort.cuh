// Sorting 64-bit numbers by one thread block: what a row of logits has left to choose from.
//
// Up to 2,048 in shared memory, by a bitonic network: 66 steps of one barrier each, about 6 us on
// an H200. More by radix, four passes of 8 bits over global memory: 128k take 4 x 2 MB at what one
// SM gets, about 100 GB/s, 80 us, and about as long in its votes.
#pragma once

#include "kernels/cuda/together.cuh"

namespace spillway::kernels::cuda {

inline constexpr uint32_t kSortThreads = 512;
inline constexpr uint32_t kSortWarps = kSortThreads / 32;
inline constexpr uint32_t kSortShared = 2048;  // numbers
inline constexpr uint32_t kDigitBits = 8;
inline constexpr uint32_t kDigits = 1u << kDigitBits;

struct SortMemory {
  Shared<uint64_t> keys;     // (kSortShared)
  Shared<uint32_t> counts;   // (kSortWarps, kDigits)
  Shared<uint32_t> scratch;  // (kSortWarps)
};

// Ascending. `count` is a power of two.
SPILLWAY_DEVICE void sort_shared(const Shared<uint64_t>& keys, uint32_t count) {
  for (uint32_t run = 2; run <= count; run *= 2) {
    for (uint32_t step = run / 2; step > 0; step /= 2) {
      for (uint32_t i = thread_index(); i < count / 2; i += kSortThreads) {
        const uint32_t low = 2 * i - (i & (step - 1));
        const bool ascends = (low & run) == 0;
        const uint64_t a = keys[low], b = keys[low + step];
        if ((a > b) == ascends) {
          keys[low] = b;
          keys[low + step] = a;
        }
      }
      sync_threads();
    }
  }
}

// The least power of two that is not below `count`.
SPILLWAY_DEVICE uint32_t padded(uint32_t count) {
  uint32_t size = 1;
  while (size < count) size *= 2;
  return size;
}

// keys[i] = value(i) for i < count, sorted; all else of them is the greatest number.
// REQUIRES: count <= kSortShared.
template <class Value>
SPILLWAY_DEVICE void sort_into_shared(const Value& value, uint32_t count,
                                      const Shared<uint64_t>& keys) {
  const uint32_t size = padded(count);
  for (uint32_t i = thread_index(); i < size; i += kSortThreads) {
    keys[i] = i < count ? value(i) : ~uint64_t{0};
  }
  sync_threads();
  sort_shared(keys, size);
}

SPILLWAY_DEVICE uint32_t digit_of(uint64_t key, uint32_t shift) {
  return static_cast<uint32_t>(key >> shift) & (kDigits - 1);
}

// The lanes of `among` that have this lane's digit.
SPILLWAY_DEVICE uint32_t lanes_alike(uint32_t digit, uint32_t among) {
  for (uint32_t bit = 0; bit < kDigitBits; ++bit) {
    const bool set = (digit >> bit & 1) != 0;
    const uint32_t votes = ballot(set);
    among &= set ? votes : ~votes;
  }
  return among;
}

// One stable pass. Each warp has a run of `from`, so that its places follow those of the warps
// before it.
SPILLWAY_DEVICE void sort_by_digit(const uint64_t* from, uint64_t* to, uint32_t count,
                                   uint32_t shift, const SortMemory& memory) {
  const uint32_t run = (count + kSortThreads - 1) / kSortThreads * 32;
  const uint32_t first = warp_index() * run;
  const uint32_t end = first + run < count ? first + run : count;
  const auto counts = memory.counts.part(size_t{warp_index()} * kDigits);
  for (uint32_t i = lane_index(); i < kDigits; i += 32) counts[i] = 0;
  sync_warp();
  for (uint32_t i = first + lane_index(); i < end; i += 32) {
    atomic_add(counts, digit_of(from[i], shift), 1u);
  }
  sync_threads();

  const uint32_t digit = thread_index();  // one a thread, of the first of them
  uint32_t mine = 0;
  for (uint32_t warp = 0; warp < kSortWarps && digit < kDigits; ++warp) {
    mine += memory.counts[warp * kDigits + digit];
  }
  uint32_t before = place_among(mine, memory.scratch).before;
  for (uint32_t warp = 0; warp < kSortWarps && digit < kDigits; ++warp) {
    const uint32_t here = memory.counts[warp * kDigits + digit];
    memory.counts[warp * kDigits + digit] = before;
    before += here;
  }
  sync_threads();

  const uint32_t lower = (1u << lane_index()) - 1;
  for (uint32_t begin = first; begin < end; begin += 32) {
    const uint32_t i = begin + lane_index();
    const uint32_t valid = ballot(i < end);
    const uint64_t key = i < end ? from[i] : 0;
    const uint32_t own = digit_of(key, shift);
    const uint32_t alike = lanes_alike(own, valid);
    const uint32_t start = i < end ? uint32_t{counts[own]} : 0;
    sync_warp();
    if (i < end) {
      to[start + count_bits(alike & lower)] = key;
      if ((alike & lower) == 0) counts[own] = start + count_bits(alike);
    }
    sync_warp();
  }
  sync_threads();
}

// Sorts `keys` (count), which ascend in their lower halves already. `spare` holds as many.
SPILLWAY_DEVICE void sort_keys(uint64_t* keys, uint64_t* spare, uint32_t count,
                               const SortMemory& memory) {
  if (count <= kSortShared) {
    sort_into_shared([keys](uint32_t i) { return keys[i]; }, count, memory.keys);
    for (uint32_t i = thread_index(); i < count; i += kSortThreads) keys[i] = memory.keys[i];
    sync_threads();
    return;
  }
  for (uint32_t shift = 32; shift < 64; shift += 2 * kDigitBits) {
    sort_by_digit(keys, spare, count, shift, memory);
    sort_by_digit(spare, keys, count, shift + kDigitBits, memory);
  }
}

}  // namespace spillway::kernels::cuda
