// Random 64-bit numbers that name a store and its snapshots. From the kernel, or for simulations
// that must replay, from a seed.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/prng.h"

namespace spillway::io {

class Entropy {
 public:
  explicit Entropy(std::optional<uint64_t> seed) {
    if (seed) prng_.emplace(*seed);
  }
  // Never 0.
  uint64_t next();

 private:
  std::optional<Prng> prng_;
};

}  // namespace spillway::io
