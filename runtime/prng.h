// Random numbers that depend on (seed, stream, counter) alone: Philox4x32-10, from "Parallel Random
// Numbers: As Easy as 1, 2, 3" (Salmon, Moraes, Dror, Shaw; SC 2011). A draw needs no state, so a
// sampler that was preempted, batched otherwise or restarted draws the same number again.
// Not for secrets.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/check.h"

namespace spillway {

// The block function: 128 bits of counter under a 64-bit key.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{0xD2511F53} * counter[0];
    const uint64_t right = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(right >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(right),
        static_cast<uint32_t>(left >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(left)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// 64 uniform bits. ~10 ns.
constexpr uint64_t random_at(uint64_t seed, uint64_t stream, uint64_t counter) {
  const auto block =
      philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                  static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{block[1]} << 32 | block[0];
}

// Uniform in [0, 1): the upper 53 of 64 bits.
constexpr double unit_interval(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// The same numbers one after the other, for simulations and tests.
class Prng {
 public:
  explicit constexpr Prng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  constexpr uint64_t next() { return random_at(seed_, stream_, counter_++); }
  // Uniform in [0, bound) up to a bias below bound / 2^64. REQUIRES: bound > 0.
  constexpr uint64_t below(uint64_t bound) {
    CHECK(bound > 0);
    return static_cast<uint64_t>(static_cast<unsigned __int128>(next()) * bound >> 64);
  }
  constexpr double uniform() { return unit_interval(next()); }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t counter_ = 0;
};

}  // namespace spillway
