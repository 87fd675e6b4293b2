// The random number behind a sampled token: a pure function of (seed, choice, position), so an
// answer repeats whatever ran beside it, and after preemption, restart or a cache hit.
#pragma once

#include <array>
#include <cstdint>

namespace spillway::model {

// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1), 53 bits. `position` is the absolute position of the token drawn.
double uniform_draw(uint64_t seed, uint32_t choice, uint32_t position);

}  // namespace spillway::model
